"""Logs on stderr: lines for a person, or one JSON object a line for a machine."""

import json
import logging
import sys
from datetime import UTC, datetime

import click

PACKAGES = ("lakehouse", "pipelines", "expectations")
FACTS = ("join", "epoch", "strategy", "reason", "step", "outcome", "code", "exit_code")
"""What a record may say besides its message."""

log = logging.getLogger("pipelines.cli")


class ToStderr(logging.Handler):
    """Log to what is `sys.stderr` when the line comes: while bars are shown, they have it go above them."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        print(self.format(record), file=sys.stderr)


class AsJson(logging.Formatter):
    """Write a record as a JSON object: `at` (UTC), `level`, `logger`, `message`, and the facts that it has."""

    def format(self, record: logging.LogRecord) -> str:
        """Write it in one line."""
        known = {name: getattr(record, name) for name in FACTS if hasattr(record, name)}
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {"at": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        raised = {"exception": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps({**told, **known, **raised}, default=str)


def log_to_stderr(*, verbose: bool, as_json: bool) -> None:
    """
    Set up the logs of our packages.

    Args:
        verbose: Whether each write is logged.
        as_json: Whether they are JSON, all that goes to stderr with them.
    """
    handler = ToStderr()
    handler.setFormatter(AsJson() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    quiet = logging.INFO if as_json else logging.WARNING
    for package in PACKAGES:
        logger = logging.getLogger(package)
        logger.setLevel(logging.DEBUG if verbose else quiet)
        logger.handlers = [handler]
        logger.propagate = False


def is_json() -> bool:
    """Tell whether logs are asked for as JSON."""
    return any(isinstance(handler.formatter, AsJson) for handler in logging.getLogger("pipelines").handlers)


def tell(message: str, level: int = logging.INFO, **facts: object) -> None:
    """Say something on stderr: as it is, or as a record of the log."""
    if is_json():
        log.log(level, message, extra=facts)
    else:
        click.echo(message, err=True)
