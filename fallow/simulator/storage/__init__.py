"""The simulated Kafka, Redis and disks."""
