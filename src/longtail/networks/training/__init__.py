"""The training of every network: the loop, its steps, checkpoints, and what it tells of itself."""
