"""Survivorship bias: collections hold only the queries that could be answered (Gupta 2021)."""
