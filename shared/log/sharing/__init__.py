"""Topics and cells that replicas of a service share."""
