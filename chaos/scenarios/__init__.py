"""The scenarios: one file for each promise."""
