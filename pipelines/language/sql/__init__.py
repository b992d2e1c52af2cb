"""SQL syntax: dialect, functions, intervals, and objections to clauses and expressions. Names are not resolved here."""
