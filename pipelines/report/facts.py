"""What all parts of a report are made of, and how an error is told to a machine."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer

from lakehouse.errors import LakejoinError, PipelineFileError


class Facts(BaseModel):
    """A value that a command reports; the texts below its fields are the descriptions in the published schema."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, use_attribute_docstrings=True)


class FaultReport(Facts):
    """One fault of a pipeline file."""

    path: str
    """Where in the file, as dotted keys: `joins.flight_status.sql`."""
    line: int | None
    """Line of the file, from 1, if it is known."""
    problem: str
    """What is wrong there."""
    hint: str
    """What would be right; may be empty."""
    excerpt: str
    """The line of the statement, and below it the clause underlined; empty if the fault is not in a statement."""


class ErrorReport(Facts):
    """What went wrong."""

    code: str
    """Stable name of the kind of error; the README lists them."""
    exit_code: int
    """The exit code that goes with it."""
    where: str
    """The pipeline file, join or table that it is about."""
    problem: str
    """What is wrong."""
    expected: str
    """What would have been right; may be empty."""
    found: str
    """What was there instead; may be empty."""
    hint: str
    """What to do next; may be empty."""
    retryable: bool
    """Whether the same command may succeed later with nothing changed."""
    faults: tuple[FaultReport, ...] = ()
    """All faults of a pipeline file, of an error with the code BAD_PIPELINE_FILE."""

    @staticmethod
    def of(error: LakejoinError) -> "ErrorReport":
        """Take an error's fields."""
        faults = error.faults if isinstance(error, PipelineFileError) else ()
        return ErrorReport(
            code=error.code,
            exit_code=error.exit_code,
            where=error.where,
            problem=error.problem,
            expected=error.expected,
            found=error.found,
            hint=error.hint,
            retryable=error.retryable,
            faults=tuple(
                FaultReport(path=f.path, line=f.line, problem=f.problem, hint=f.hint, excerpt=f.excerpt) for f in faults
            ),
        )


Failure = Annotated[LakejoinError, PlainSerializer(ErrorReport.of, return_type=ErrorReport)]
"""An error inside a report: the exception itself in Python, its fields for a machine."""
