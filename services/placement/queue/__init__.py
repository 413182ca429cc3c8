"""The scheduling cycle along the queues: heads, backfill, planned starts, fair share."""
