"""Measuring: real training and microbenchmarks here and now. The profile file is all that leaves this room."""
