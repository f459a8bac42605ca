"""Linguistic bias: quality that depends on how a query is worded (Cheng & Amiri 2025)."""
