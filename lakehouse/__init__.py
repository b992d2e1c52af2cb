"""Delta tables as KTables: the only package that knows Delta. It imports nothing of the other two packages."""
