"""The reports of commands: values that each render as text and as JSON."""

from pipelines.report.cases import CaseReport, CasesReport, Difference
from pipelines.report.changes import ChangesReport, RowChange
from pipelines.report.document import ColumnReport, Command, Part, QueryReport, Report, report_schema
from pipelines.report.join_report import JoinReport, PlanReport, joined_reports, versions_after
from pipelines.report.run_report import RunReport
from pipelines.report.state import (
    EpochReport,
    GateStatus,
    JoinExplanation,
    JoinHistoryReport,
    JoinStatus,
    SourceExplanation,
    SourceStatus,
)

__all__ = [
    "CaseReport", "CasesReport", "ChangesReport", "ColumnReport", "Command", "Difference", "EpochReport", "GateStatus",
    "JoinExplanation", "JoinHistoryReport", "JoinReport", "JoinStatus", "Part", "PlanReport", "QueryReport", "Report",
    "RowChange", "RunReport", "SourceExplanation", "SourceStatus", "joined_reports", "report_schema", "versions_after",
]  # fmt: skip
