"""Placing by when the jobs on a node are expected to end."""
