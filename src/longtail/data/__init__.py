"""Documents and labels: reading, checking, writing."""
