"""State machines around the log that do no I/O: they take records and answers, and return what to do next."""
