"""Microbenchmarks: each file measures one thing and yields its raw samples."""
