"""Write what an epoch has staged to its tables, exactly once. Knows no kind of join."""
