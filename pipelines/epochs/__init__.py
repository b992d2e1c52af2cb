"""One epoch of one join, from the look at its tables to the committed row. No command, and no other join."""
