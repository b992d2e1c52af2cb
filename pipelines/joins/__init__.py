"""
Joins as functions from DataFrames to DataFrames, without I/O, actions or Delta.

Every function takes `scope`: the names of columns that separate independent histories, so that many joins of one kind
run as a single job.
"""
