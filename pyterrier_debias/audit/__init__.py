"""Floor 4: one call over all rooms."""
