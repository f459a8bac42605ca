"""Training against the bias."""
