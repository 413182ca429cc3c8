"""What `fallow simulate` and its comparisons are made of: policies by name, seeds, tables and plots."""
