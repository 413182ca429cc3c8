"""`fallow bench`: every figure of the docs, one file for each benchmark."""
