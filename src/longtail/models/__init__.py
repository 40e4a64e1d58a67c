"""Trained models: one of a method, or several as one; what they predict, and the folders that hold
them.
"""
