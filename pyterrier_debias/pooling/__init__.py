"""Pooling bias: false negatives in training (Cai et al. 2022)."""
