"""Places kept for owners: tenants of whom a job waits though GPUs of their guarantee are idle."""
