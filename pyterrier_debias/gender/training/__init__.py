"""What trains around the bias."""
