"""Measuring: real training and microbenchmarks on the devices at hand. The profile file is all that leaves this room."""
