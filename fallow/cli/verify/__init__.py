"""`fallow verify`: the decision log checked from outside."""
