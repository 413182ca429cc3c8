"""A Kafka and a Redis of this machine that let nobody in without a password, each started by one class."""
