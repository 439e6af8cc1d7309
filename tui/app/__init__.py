"""The terminal app: a scenario, its curve, and what would change it."""
