"""A join among the joins of a file: chains, changelogs, fingerprints and bound names."""
