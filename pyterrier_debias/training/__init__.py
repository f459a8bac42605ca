"""What training and scoring ask of each other. Names no architecture."""
