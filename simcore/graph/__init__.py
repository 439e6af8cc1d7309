"""The task graph of a step, compiled once to arrays and evaluated for many columns of durations at once."""
