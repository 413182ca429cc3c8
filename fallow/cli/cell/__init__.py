"""Commands on a cell: its file, policy, topics, view, snapshots and metrics."""
