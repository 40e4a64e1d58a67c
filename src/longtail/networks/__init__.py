"""Networks: the training loop, the heads that score the nodes of a level, and the methods built of
them.
"""
