"""The classifiers of a level of the label tree, in a network: what scores nodes, and how they are
trained.
"""
