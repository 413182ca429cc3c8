"""`fallow bench a1`: the cases of KAI-Scheduler's own scale tests, each on a running cell."""
