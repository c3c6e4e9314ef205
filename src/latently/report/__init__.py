"""Self-contained HTML reports on fitted models."""

from latently.report._commands import CommandLine
from latently.report._page import Report, explore, report, write_report

__all__ = ["CommandLine", "Report", "explore", "report", "write_report"]
