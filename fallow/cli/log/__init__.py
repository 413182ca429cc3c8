"""Commands on the decision log: read it, compare it, repair it."""
