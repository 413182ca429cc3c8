"""`fallow simulate` and `fallow case`: the services in virtual time."""
