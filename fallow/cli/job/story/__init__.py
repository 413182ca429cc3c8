"""The story of one job: where it stands, where it was, why it waits."""
