"""Keeps the Redis view equal to the log."""
