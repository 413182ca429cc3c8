"""The rules of the judge: one file for each promise."""
