"""Places kept for owners: tenants with a waiting job while GPUs of their guarantee are idle."""
