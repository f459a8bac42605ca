"""Reading, describing and changing data."""
