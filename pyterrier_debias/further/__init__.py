"""Three biases that an audit examines where they are asked for: source, length and order."""
