"""Epochs of the tables kept of changelog sources."""
