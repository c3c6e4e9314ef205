"""Self-contained HTML reports on fitted models."""

from latently.report._page import Report, explore, report, write_report

__all__ = ["Report", "explore", "report", "write_report"]
