"""A module that exports a room, as the audit's list of rooms expects it."""

from tests.report.worlds import ORDER as ROOM

__all__ = ["ROOM"]
