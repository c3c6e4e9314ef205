"""What a model found, as one HTML file to read and to show to others."""

from latently.report._page import Report, report, write_report

__all__ = ["Report", "report", "write_report"]
