"""What each strategy lays on the task graph; ``measure/train`` runs the same names for real."""
