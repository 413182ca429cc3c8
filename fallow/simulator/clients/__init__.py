"""Those outside a simulated world's services: tenants, readers, the person who looks after it."""
