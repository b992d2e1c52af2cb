"""Values as plain data, as SQL text and as rows: comparison, pruning, change sets, checksums."""
