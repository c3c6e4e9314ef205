"""Self-contained HTML reports on fitted models."""

from latently.report._page import Report, report, write_report

__all__ = ["Report", "report", "write_report"]
