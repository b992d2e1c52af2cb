"""Delta tables: their logs, their rows at a version, their feeds, how they are made and maintained."""
