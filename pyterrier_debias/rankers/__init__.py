"""Floor 2: neural rankers that implement the scorer protocol; batch-invariant and fast."""
