"""Pooling bias: unlabelled positives are trained as negatives (Cai et al. 2022)."""
