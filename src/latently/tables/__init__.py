"""Models of tables: from the user's table to numbers, and answers in the table's units and names."""

from latently.tables.model import TableModel

__all__ = ["TableModel"]
