"""Datasets with one interface: from files, from ir_datasets, from memory, or planted."""
