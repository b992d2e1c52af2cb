"""The base class of all parts of a report, and the JSON form of an error."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer

from lakehouse.errors.errors import LakejoinError


class Facts(BaseModel):
    """A value that a command reports. The docstrings of its fields are the descriptions in the published schema."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, use_attribute_docstrings=True)


class FaultReport(Facts):
    """One error in a pipeline file."""

    path: str
    """The place in the file, as dotted keys: `joins.flight_status.sql`."""
    line: int | None
    """The line of the file, counted from 1; null if it is not known."""
    problem: str
    """What is wrong."""
    hint: str
    """How to correct it; may be empty."""
    excerpt: str
    """The line of the statement, with the clause underlined in the next line; empty if the error is not in a
    statement."""


class ErrorReport(Facts):
    """An error of a command or of a join."""

    code: str
    """The stable code of the kind of error; the documentation lists the codes."""
    exit_code: int
    """The exit code of the command for this kind of error."""
    where: str
    """The pipeline file, join or table that the error is about."""
    problem: str
    """What is wrong."""
    expected: str
    """What was expected; may be empty."""
    found: str
    """What was found instead; may be empty."""
    hint: str
    """What to do next; may be empty."""
    retryable: bool
    """Whether the same command may succeed later without any change by the user."""
    faults: tuple[FaultReport, ...] = ()
    """All errors in the pipeline file; only for the code BAD_PIPELINE_FILE."""

    @staticmethod
    def of(error: LakejoinError) -> "ErrorReport":
        """Build the report of an error from its fields."""
        return ErrorReport.model_validate(error, from_attributes=True)


Failure = Annotated[LakejoinError, PlainSerializer(ErrorReport.of, return_type=ErrorReport)]
"""An error inside a report: the exception itself in Python, its fields in JSON."""
