"""Topics, rights and groups at Kafka: what is declared, and what is there."""
