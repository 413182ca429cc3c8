"""`fallow bench k1`, `k2` and `l1`: queues that borrow from each other, and jobs behind a deep queue."""
