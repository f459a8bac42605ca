"""Datasets of one shape, from files, from ir_datasets, from memory, or planted."""
