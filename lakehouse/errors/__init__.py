"""Errors with where, what, and what to do next, and what an exception of Spark or Delta means."""
