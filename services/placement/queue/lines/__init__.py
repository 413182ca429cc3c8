"""The lines of a cell's queues, kept by class and in their order, for any backlog."""
