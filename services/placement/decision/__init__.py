"""The decision that is being built: its inputs, its effects, its room."""
