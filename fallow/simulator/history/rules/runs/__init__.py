"""Rules about where jobs run, and how their runs end."""
