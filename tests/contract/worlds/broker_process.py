"""A broker of our own that may be frozen and killed: librdkafka's mock, in its own process. Prints its address."""

from __future__ import annotations

import signal
import sys

from confluent_kafka import Producer

if __name__ == "__main__":
    cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    broker = next(iter(cluster.list_topics(timeout=10).brokers.values()))
    sys.stdout.write(f"{broker.host}:{broker.port}\n")
    sys.stdout.flush()
    signal.pause()
