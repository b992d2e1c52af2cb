"""The plan of an epoch, as values: `plan` prints it and `run` executes it. This package reads no table."""
