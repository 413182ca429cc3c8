"""Pure rules of the executor: what the log wants of a node, how a node follows it, and runs that only take time."""
