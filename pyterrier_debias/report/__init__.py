"""The audit of all biases, and its outputs: text, pages, cards, comparisons, gates, the command line."""
