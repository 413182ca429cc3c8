"""How answers are shown: tables, times, progress."""
