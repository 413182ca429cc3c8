"""What happened in a simulated world, and the judge of it, who stands outside."""
