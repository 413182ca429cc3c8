"""librdkafka's broker in memory, a process of its own: `python -m fallow.shared.runtime.stack.embedded_broker_process`.

Prints its bootstrap address in one line on standard output and serves until it is ended. What it cannot do, design
section "Running it" in the README says; it is for the demo, and for tests where no Kafka can be had.
"""

from __future__ import annotations

import signal
import sys

from confluent_kafka import Producer

METADATA_WAIT_S = 10.0


def main() -> None:
    """Starts one broker, tells its address, waits for the end."""
    # The client that owns the mock cluster; it is handed the cluster's address in place of its bootstrap servers.
    owner = Producer({"test.mock.num.brokers": 1, "log_level": 2})
    brokers = owner.list_topics(timeout=METADATA_WAIT_S).brokers
    sys.stdout.write(",".join(f"{broker.host}:{broker.port}" for broker in brokers.values()) + "\n")
    sys.stdout.flush()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
