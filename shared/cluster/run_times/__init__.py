"""How long jobs have run, as it is learned from those that are over."""
