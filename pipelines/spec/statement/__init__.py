"""One SQL statement as values: its inputs, kind, bounds and columns. No other join is known here."""
