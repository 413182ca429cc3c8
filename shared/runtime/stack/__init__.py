"""Real parts on one machine, for tests, the demo and replays: Kafka, Redis, and the services as processes.

Each part is started by one class with `start`, `stop` and `kill`, in a process of its own that dies with its parent.
`choose` says which Kafka and which Redis to take, and why not the others.
"""
