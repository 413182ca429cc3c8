"""The placement policies that an operator names."""
