"""`fallow bench`: how fast, how late and how large the running system is, each beside a baseline of the same run."""
