"""A Kafka and a Redis of this machine that require a password, each started by one class."""
