"""The lowest layer: frames, text, statistics, evaluation, stages, files, and the definition of a bias. No neural library."""
