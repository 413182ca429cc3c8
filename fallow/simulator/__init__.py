"""One engine for virtual time: the simulated world, in which everything that can go wrong does, drawn from one seed."""
