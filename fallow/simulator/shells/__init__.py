"""What lets the shells of production run in the simulated world: an event loop on its clock, and the ports onto it."""
