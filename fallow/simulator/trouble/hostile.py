"""Records that no honest sender would write: noise, torn ones, surplus fields, other cells, copies of old ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fallow.shared.events.base import TYPES
from fallow.shared.events.codec.encoding import SUBMISSION_BYTES_MAX
from fallow.shared.events.decisions import Decision
from fallow.simulator.engine import Engine
from fallow.simulator.history.record import Logged, TopicPartition
from fallow.simulator.storage.broker import Message

TOPICS = ("submissions", "submissions", "submissions", "jobs", "nodes", "operations", "decisions", "proposals")

OF_A_CELL = ("jobs", "nodes", "operations", "proposals")
"""Topics with a partition for each cell."""

VALUES: tuple[bytes | None, ...] = (
    None,
    b"",
    b"{",
    b"null",
    b"[]",
    b"\xff\xfe\x00",
    b'{"job": {"id": "job-1", "tenant": "absent"}}',
    b'{"job": "job-1", "tenant": "ada", "surplus": 1}',
    b'{"cell": "cell-9", "node": "n", "boot": "b", "seq": 1}',
    b'{"cell": "cell-0", "node": "ghost", "boot": "boot-1", "seq": 18446744073709551616}',
    b'{"cell": "cell-0", "node": "ghost", "boot": "boot-1", "seq": 3, "job": "job-1", "attempt": 1}',
    b'{"cell": "cell-0", "version": 9007199254740991, "epoch": 1, "at_ms": 1, "effects": []}',
    b'{"cell": "cell-0", "version": 0, "epoch": 1, "at_ms": 1, "effects": [{"kind": "Unheard"}]}',
    b"[" * 3_000,
    b'{"job": {"id": "job-1", "tenant": "absent"}}' + b" " * SUBMISSION_BYTES_MAX,
    b'{"job": "job-1"}' + b" " * SUBMISSION_BYTES_MAX,
    b'{"job": ' + b"9" * 400 + b"}",
)


def hostile_message(engine: Engine, log: Mapping[TopicPartition, Sequence[Logged]], cells: int) -> Message:
    """A record, drawn by chance. What a decision's version would make fatal is no record of this log's writer."""
    topic = engine.chance.choice(TOPICS)
    partition = engine.chance.randrange(0, 3 if topic == "submissions" else cells)
    key = f"hostile-{engine.between(0, 99)}"
    if topic == "decisions":
        return _on_decisions(engine, log, partition, key)
    strays = log.get((topic, engine.chance.randrange(0, cells))) if topic in OF_A_CELL else None
    if strays and engine.between(0, 7) == 0:
        stray = engine.chance.choice(strays)  # most of these are of another cell
        return Message(topic, partition, key, stray.type, None, stray.value)
    if engine.between(0, 3) == 0 and log.get((topic, partition)):
        torn = engine.chance.choice(log[topic, partition])
        value = torn.value or b""
        return Message(topic, partition, key, torn.type, None, value[: engine.chance.randrange(0, len(value) + 1)])
    types = ("", "fallow.unheard.v1", "fallow.job.submit.v9", *sorted(TYPES))
    return Message(topic, partition, key, engine.chance.choice(types), None, engine.chance.choice(VALUES))


def _on_decisions(engine: Engine, log: Mapping[TopicPartition, Sequence[Logged]], partition: int, key: str) -> Message:
    """Only placement may write here; what another one could is noise, or a copy of an old record."""
    old = log.get(("decisions", partition), ())
    if len(old) > 1 and engine.between(0, 1):
        copy = engine.chance.choice(old[:-1])
        forged = copy.is_forged
        return Message("decisions", partition, copy.key, copy.type, None, copy.value, copy.chain, is_forged=forged)
    value = engine.chance.choice((None, b"", b"{", b"\x00" * 40))
    return Message("decisions", partition, key, Decision.type, None, value, "f" * 32)
