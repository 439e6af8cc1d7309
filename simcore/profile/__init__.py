"""The profile file: its schema, how it is read and written, and the fit inside it."""
