"""The users of the view at Redis, and their rights."""
