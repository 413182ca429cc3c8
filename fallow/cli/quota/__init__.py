"""Commands on tenants, their quotas and shares."""
