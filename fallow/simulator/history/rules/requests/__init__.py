"""Rules about what becomes of each request."""
