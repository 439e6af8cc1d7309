"""Everything in the terminal: commands, reports, charts and the app."""
