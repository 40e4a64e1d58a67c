"""From a document's features to its ranked labels."""
