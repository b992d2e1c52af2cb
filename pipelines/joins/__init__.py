"""
Joins as functions of DataFrames: no I/O, no actions, no Delta.

Every function takes `scope`: the names of columns that keep independent histories apart, so that many joins of one
kind run as a single job.
"""
