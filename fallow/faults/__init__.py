"""`fallow faults`: simulated worlds full of faults, and mutants of the code."""
