"""By which topic the submissions of a tenant go: by its own where Kafka shows one, else by the common one.

So it is right for an operator, whatever its cell file says of the topic by now, and for the tenant's own user, which
has no cell file of the cells and sees no topic but that one. Admission reads an own topic for as long as it is there;
from its next start on only where its own cell file has the tenant.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, LogUnavailable


async def as_kafka_shows(log: Log, layout: Layout, tenants: Collection[str], known: Collection[str] | None) -> Layout:
    """The layout by which the submissions of these tenants go where they are read. `known` are the tenants of the cell
    file, None where it is not known.

    Raises LogUnavailable where no sender would get an answer: where a tenant has a topic of its own and this user sees
    none (by the common one all is rejected), and where one is there of a tenant that the cell file does not have.
    """
    own = {tenant: layout.submissions(tenant) for tenant in tenants}
    counts = await log.partition_counts([layout.submissions(), *own.values()])
    unseen = [topic for tenant, topic in own.items() if tenant in layout.own_topics and not counts[topic]]
    if unseen:
        why = "own_topic in the cell file says that there is one: `fallow topics create` makes it, with its rights"
        raise LogUnavailable(f"topic {unseen[0]} is not there, or this user may not see it; {why}")
    seen = frozenset(tenant for tenant, topic in own.items() if counts[topic])
    if known is not None and counts[layout.submissions()] and (left := sorted(seen.difference(known))):
        why = f"though the cell file has no tenant {left[0]}, so perhaps no service reads it: nothing is sent"
        what = "give the cell file that the cells go by, or remove the topic"
        raise LogUnavailable(f"topic {own[left[0]]} is there, {why}; {what}")
    return replace(layout, own_topics=seen)


async def sees_own_topics_alone(log: Log, layout: Layout, tenants: Collection[str]) -> bool:
    """Whether this user sees no decisions, though by their own topics it may send what these tenants wish: it is a
    tenant's own. Raises LogUnavailable.
    """
    return layout.own_topics.issuperset(tenants) and not await log.partitions(layout.topic("decisions"))
