"""Training of rankers, independent of their architecture."""
