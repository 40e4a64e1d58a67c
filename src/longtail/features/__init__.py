"""From text to numbers: features of documents and of labels."""
