"""Events of nodes: join, lease, silence, loss, quarantine, maintenance, removal."""
