"""loaning: lends idle servers, takes them back at the least cost, and resizes elastic jobs."""
