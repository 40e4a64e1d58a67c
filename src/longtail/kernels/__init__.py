"""Compiled inner loops: numba on the CPU. They know arrays only, never a Dataset or a file."""
