"""Which cells have a log at this Kafka: a user who asks for one that has none has named another cell file."""

from __future__ import annotations

from fallow.cli.access import Access
from fallow.shared.client.port import ClientUnavailable
from fallow.shared.events.decisions import Decision
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, LogUnavailable
from fallow.shared.log.reading import event_of
from fallow.shared.runtime.kafka_access import KafkaAccess, Protocol

USUAL_TOPICS = ("decisions", "jobs", "operations", "snapshots")
"""Where one of these is the namespace has topics. The topics of submissions others see, too."""


BUT_SNAPSHOTS = (
    "but there are snapshots of the cell: it was moved here and its services have not begun, or its decisions are lost "
    "(fallow log repair)"
)


class NoCellHere(ClientUnavailable):
    """The log holds no decision of this cell. One line: the cell, the namespace, and the cell file that names it."""


async def cells_in_the_log(access: Access) -> dict[str, str]:
    """Of each cell of the file, whose decisions stand in its partition: its own, or those of another that has the same
    ordinal. One whose partition is empty, or not there, is left out. Raises LogUnavailable.
    """
    log = KafkaLog(access.kafka_access, "fallow-cli")
    await log.start()
    try:
        return await found_in(log, access.layout())
    finally:
        await log.stop()


async def found_in(log: Log, layout: Layout) -> dict[str, str]:
    """The cells on any started log, and a sentence about each."""
    there = await log.partitions(layout.topic("decisions"))
    tps = {layout.tp("decisions", cell): cell for cell, ordinal in layout.ordinals.items() if ordinal < there}
    newest = await log.last_before(await log.end_offsets(list(tps))) if tps else {}
    events = {tps[tp]: event_of(record) for tp, record in newest.items()}
    return {cell: event.cell if isinstance(event, Decision) else cell for cell, event in events.items()}


async def has_snapshots(log: Log, layout: Layout, cell: str) -> bool:
    """Whether the newest record among the cell's snapshots is its own: the cell is, or was, here whatever its log says.
    Raises LogUnavailable.
    """
    topic, partition = tp = layout.tp("snapshots", cell)
    if await log.partitions(topic) <= partition:
        return False
    newest = (await log.last_before(await log.end_offsets([tp]))).get(tp)
    return newest is not None and (newest.key or b"").startswith(f"{cell}/".encode())


async def no_topics(access: Access) -> NoCellHere | None:
    """What is to be told where this Kafka has no topics of the namespace; None where it has, or no answer came."""
    kafka = access.kafka_access
    log = KafkaLog(kafka, "fallow-cli")
    try:
        await log.start()
        there = await log.partition_counts([access.layout().topic(name) for name in USUAL_TOPICS])
    except LogUnavailable:
        return None
    finally:
        await log.stop()
    if any(there.values()):
        return None
    return NoCellHere(none_seen(access.namespace, kafka))


def none_seen(namespace: str, kafka: KafkaAccess) -> str:
    """The message for a namespace in which this user sees no topics: a Kafka with authentication hides those to which
    the user has no right.
    """
    why = "another name was meant, or `fallow topics create` has not made them yet"
    of = f"of namespace {namespace} (FALLOW_NAMESPACE) at this Kafka"
    if kafka.protocol is Protocol.PLAINTEXT:
        return f"there are no topics {of}: {why}"
    user = f"user {kafka.username}" if kafka.username else "this user"
    rights = "`fallow topics create` gives the rights of deploy/kafka/access.yaml"
    return f"{user} sees no topics {of}: it may have no right to them ({rights}), {why}"


async def no_such(access: Access, cell: str) -> NoCellHere | None:
    """What is to be told where this cell has no log here; None where it has, or where no answer came."""
    log, layout = KafkaLog(access.kafka_access, "fallow-cli"), access.layout()
    try:
        await log.start()
        found = (await found_in(log, layout)).get(cell)
        is_kept = found is None and await has_snapshots(log, layout, cell)
    except LogUnavailable:
        return None
    finally:
        await log.stop()
    if found == cell:
        return None
    if is_kept:
        return NoCellHere(f"the log of cell {cell} in namespace {access.namespace} holds no decision, {BUT_SNAPSHOTS}")
    other = "" if found is None else f", but a cell {found}"
    file = "is not set, so it is" if access.cell_file is None else "(or --cell-file) is"
    where = f"in namespace {access.namespace} (FALLOW_NAMESPACE)"
    return NoCellHere(f"there is no cell {cell} {where}{other}; FALLOW_CELL_FILE {file} {access.cell_path}")
