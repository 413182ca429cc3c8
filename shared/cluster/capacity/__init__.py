"""Where room is: indices over the nodes of a pool, kept by delta."""
