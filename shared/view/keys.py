"""The names of a cell's keys. The cell stands in braces, so that a Redis cluster keeps all of them in one place.

Six keys for each cell, however many queues, tenants and jobs it has: so every function is given the same keys, and to
forget a view is to unlink five of them.
"""

from __future__ import annotations

from fallow.shared.cluster.model.queue_order import Order

SCHEMA = "5"
"""The form of the rows. A view of another form counts as not there, and is built anew."""


def keys_of(namespace: str, cell: str) -> tuple[str, ...]:
    """The keys that every function takes, in this order.

    meta     hash    schema, ready, cursor, version, chain, at_ms, pools, rebuild, rebuild_ms,
                     fenced, sizes (of the other five)
    jobs     hash    job id -> row
    nodes    hash    node id -> row
    tenants  hash    tenant -> row
    waiting  zset    all scores 0: queued jobs by queue and then in queue order (see `place_in_queue`)
    index    zset    all scores 0: `s STATUS JOB` and `t TENANT STATUS JOB` of every job
    """
    prefix = f"{namespace}:{{{cell}}}:"
    return tuple(prefix + name for name in ("meta", "jobs", "nodes", "tenants", "waiting", "index"))


_ABOVE_EACH = 1 << 60
"""Added to the numbers of an order, which may be negative, so that all of them are positive and have 19 digits."""


def place_in_queue(queue: str, order: Order) -> str:
    """A name that sorts, byte by byte, as the queue serves, shares aside (`fallow.shared.cluster.model.queue_order`).

    A space sorts before every character that a queue's name may hold, so each queue's jobs stand together.
    """
    first, second, number, job_id = order
    return f"{queue} {first + _ABOVE_EACH:019} {second + _ABOVE_EACH:019} {number:019} {job_id}"
