"""Commands on nodes."""
