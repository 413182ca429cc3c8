"""What came of a run, read from its topics."""
