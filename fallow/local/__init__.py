"""What `fallow up` starts on one machine: Kafka, Redis, services and virtual nodes."""
