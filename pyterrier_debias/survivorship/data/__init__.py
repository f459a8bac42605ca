"""What reads, describes or changes data."""
