"""The wiring of placement: the writer and its standbys."""
