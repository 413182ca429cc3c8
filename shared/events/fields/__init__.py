"""What the fields of records hold: values, and the ids of jobs."""
