"""The scenario file: its schema and how it is read."""
