"""Errors of the system, and errors with which a process ends, in words for people."""
