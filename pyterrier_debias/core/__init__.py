"""What everything stands on: frames, text, statistics, evaluation, stages, files, and what a bias is. No neural library."""
