"""The wiring of placement: the writer, and the process that takes snapshots."""
