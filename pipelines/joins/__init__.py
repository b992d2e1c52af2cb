"""
Joins as functions from DataFrames to DataFrames, without I/O, actions or Delta.

Functions of joins of two streams take `scope`: the names of columns that separate independent histories, each with
watermarks of its own. Frames have these columns besides those that a docstring names.
"""
