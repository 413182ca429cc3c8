"""What the values of options and arguments must be."""
