"""Training and prediction on more than one machine or GPU."""
