"""Rules about who comes first, and who waits for what."""
