"""The papers' experiments: their datasets, their published tables, and running them again."""
