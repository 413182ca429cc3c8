"""The search for victims: which running jobs stop, so that one that waits can start, at the least cost."""
