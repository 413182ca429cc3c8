"""Rules about which job comes first, and which waits for what."""
