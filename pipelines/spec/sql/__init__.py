"""SQL expressions: dialect, functions, intervals, and errors in expressions. Joins are not known here."""
