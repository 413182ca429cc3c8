"""Tasks of one process: together, cancelled, repeated, in the background."""
