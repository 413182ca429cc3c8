"""What happens to nodes and to runs after the start of a job."""
