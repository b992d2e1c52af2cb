"""SQL of the parser: dialect, functions, intervals, and the faults found in an expression. No statement."""
