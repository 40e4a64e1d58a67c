"""The label tree: what it is, and how labels are clustered into one."""
