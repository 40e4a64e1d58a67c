"""Encoders on vectors of words, in place of a transformer."""
