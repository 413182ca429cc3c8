"""The processes of the simulated world: thin synchronous shells around the services that run in production."""
