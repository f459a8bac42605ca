"""Survivorship bias: collections hold only the queries that somebody could answer (Gupta 2021)."""
