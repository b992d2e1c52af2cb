"""Logs on stderr: plain lines for a user, or one JSON object per line for a machine."""

import json
import logging
import sys
from datetime import UTC, datetime

import click

PACKAGES = ("lakehouse", "pipelines", "expectations")
FACTS = ("join", "epoch", "strategy", "reason", "step", "outcome", "code", "exit_code")
"""The fields that a JSON record may have besides its message."""

log = logging.getLogger("pipelines.cli")


class ToStderr(logging.Handler):
    """A handler that looks up `sys.stderr` for each record: `rich` replaces it while progress bars are shown."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record as one line."""
        print(self.format(record), file=sys.stderr)


class AsJson(logging.Formatter):
    """Formats a record as a JSON object: `at` (UTC), `level`, `logger`, `message`, and those of `FACTS` that it has."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line."""
        known = {name: getattr(record, name) for name in FACTS if hasattr(record, name)}
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fixed = {"at": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        raised = {"exception": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps({**fixed, **known, **raised}, default=str)


def log_to_stderr(*, verbose: bool, as_json: bool) -> None:
    """Set up the loggers of lakejoin: `verbose` logs each write, and `as_json` makes all that goes to stderr JSON."""
    handler = ToStderr()
    handler.setFormatter(AsJson() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    quiet = logging.INFO if as_json else logging.WARNING
    for package in PACKAGES:
        logger = logging.getLogger(package)
        logger.setLevel(logging.DEBUG if verbose else quiet)
        logger.handlers = [handler]
        logger.propagate = False


def is_json() -> bool:
    """Return whether logs are written as JSON."""
    return any(isinstance(handler.formatter, AsJson) for handler in logging.getLogger("pipelines").handlers)


def tell(message: str, level: int = logging.INFO, **facts: object) -> None:
    """Print a message on stderr: as plain text, or as a JSON log record with the facts."""
    if is_json():
        log.log(level, message, extra=facts)
    else:
        click.echo(message, err=True)
