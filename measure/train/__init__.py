"""Trainers: each runs for real, with torch's own implementation, what ``simcore/strategies`` predicts by that name."""
