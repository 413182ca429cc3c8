"""The services, one folder and one process each."""
