"""What is wrong with a value that comes from outside, in words."""
