"""Makes decisions happen: the node agents of one process, and what drives their runs."""
