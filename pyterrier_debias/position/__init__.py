"""The position room (floor 3): answers sit early in passages. Hofstätter et al. 2021."""
