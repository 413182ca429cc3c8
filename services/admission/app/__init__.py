"""The wiring of admission: its share of the submissions, and how far placement is behind it."""
