"""Values as plain data, as SQL text with addresses, and as rows: comparison, pruning, change sets, checksums."""
