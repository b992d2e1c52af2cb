"""Run one epoch of a join of any kind, from its plan to the committed row. Calls a kind, and imports none."""
