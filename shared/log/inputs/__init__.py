"""What becomes of inputs: how far they are read, what they have lost, what is set aside."""
