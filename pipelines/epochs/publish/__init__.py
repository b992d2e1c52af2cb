"""Gate what an epoch has staged and write it to its tables, exactly once. Calls a kind, and imports none."""
