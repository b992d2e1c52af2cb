"""The binding of the pipeline file's names to tables, each pinned to a version, with its columns. Computes no rows."""
