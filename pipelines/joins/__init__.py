"""
Joins as functions from DataFrames to DataFrames, without I/O, actions or Delta.

`scope` names columns that separate independent histories, so that many joins of one kind run as a single job. Frames
have these columns besides those that a docstring names.
"""
