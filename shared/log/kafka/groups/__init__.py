"""Consumer groups of Kafka: members, shares, commits."""
