"""Remedies for epochs that cannot continue."""


def backfill_hint(join: str) -> str:
    """Return the remedy for a join that cannot continue from its recorded versions: a backfill."""
    return f"run `lakejoin backfill --select {join}` to reconcile the result with the sources as they are now"
