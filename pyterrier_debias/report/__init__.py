"""One call over all biases, and what is made of its findings: text, pages, cards, comparisons, gates, the command line."""
