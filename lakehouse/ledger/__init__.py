"""The ledger: one row for each step of an epoch."""
