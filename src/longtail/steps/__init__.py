"""The steps of the pipeline, one file each: what is made, and kept in stages that an interrupted
run resumes by.
"""
