"""The clients of a simulated world's services: tenants, readers, the operator."""
