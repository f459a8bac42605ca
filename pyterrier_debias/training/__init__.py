"""Floor 1: what training and scoring ask of each other. Names no architecture."""
