"""Errors with where, what, and what to do next; addresses, and what an exception of Spark or Delta means."""
