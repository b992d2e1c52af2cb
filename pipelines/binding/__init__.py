"""The names of the pipeline file as tables, each pinned to a version, with its columns. Nothing is computed here."""
