"""The reports of commands: values that each render as text and as JSON."""

from pipelines.report.document import ColumnReport, Command, Part, QueryReport, Report, report_schema
from pipelines.report.explanation import JoinExplanation, SourceExplanation
from pipelines.report.facts import ErrorReport
from pipelines.report.history import EpochReport, JoinHistoryReport
from pipelines.report.join_report import JoinReport, PlanReport, joined_reports
from pipelines.report.status import GateStatus, JoinStatus, SourceStatus

__all__ = [
    "ColumnReport",
    "Command",
    "EpochReport",
    "ErrorReport",
    "GateStatus",
    "JoinExplanation",
    "JoinHistoryReport",
    "JoinReport",
    "JoinStatus",
    "Part",
    "PlanReport",
    "QueryReport",
    "Report",
    "SourceExplanation",
    "SourceStatus",
    "joined_reports",
    "report_schema",
]
