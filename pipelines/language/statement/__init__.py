"""One SQL statement as values: its inputs, kind, bounds and columns. Other joins are not known here."""
