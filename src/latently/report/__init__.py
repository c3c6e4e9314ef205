"""Self-contained HTML reports on fitted models."""

from latently.report._commands import CommandLine
from latently.report._page import Report, report, write_report

__all__ = ["CommandLine", "Report", "report", "write_report"]
