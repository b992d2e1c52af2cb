"""What one epoch will do, as values: `plan` prints it and `run` carries it out. Nothing here reads a table."""
