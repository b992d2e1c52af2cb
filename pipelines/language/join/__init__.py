"""Joins in the context of their file: chains, changelogs, fingerprints and resolved names."""
