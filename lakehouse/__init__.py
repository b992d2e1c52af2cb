"""Delta tables as KTables: the only package that depends on Delta. It imports neither of the other two packages."""
