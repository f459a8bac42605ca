"""Neural rankers that implement the scorer protocol; batch-invariant and fast."""
