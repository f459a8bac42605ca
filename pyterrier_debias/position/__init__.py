"""Position bias: answers come early in passages. Hofstätter et al. 2021."""
