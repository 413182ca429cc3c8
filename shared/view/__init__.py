"""The Redis view of each cell: what the fold of its log gives, kept where many readers can look."""
