"""The HTTP server: endpoints, micro-batches, limits and the web page."""
