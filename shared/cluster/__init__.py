"""The pure model of one cell: its state, the fold of its log, and what must always be true of both."""
