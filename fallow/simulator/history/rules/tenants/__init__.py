"""Rules about what tenants may use, and whose jobs are whose."""
