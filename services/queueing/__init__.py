"""The next jobs: orders the waiting jobs of each queue and publishes the heads. Beside that it writes the snapshots."""
