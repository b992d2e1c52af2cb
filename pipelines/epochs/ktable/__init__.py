"""Epochs of the KTables of changelog sources."""
