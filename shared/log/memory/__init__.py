"""The log within one process: for tests and simulation."""
