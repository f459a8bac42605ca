"""Pure functions with the paper's symbols."""
