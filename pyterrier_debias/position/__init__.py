"""The position room: answers sit early in passages. Hofstätter et al. 2021."""
