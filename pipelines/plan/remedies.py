"""What helps where an epoch cannot go on."""


def backfill_hint(join: str) -> str:
    """Say what helps where the recorded versions cannot be continued from."""
    return f"run `lakejoin backfill --select {join}` to reconcile the result with the sources as they are now"
