"""Run one epoch of one join, from the checks of its tables to the committed row. Knows no command and no other join."""
