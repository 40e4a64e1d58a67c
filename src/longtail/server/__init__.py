"""A model behind HTTP: endpoints, micro-batches, limits, the page."""
