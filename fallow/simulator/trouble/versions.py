"""Services of other releases beside ours: one before that says less at once, one behind that says more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from fallow.shared.events.base import TYPES, CellEvent
from fallow.shared.events.codec.encoding import STRICT, decode, encode
from fallow.shared.events.fields.values import RunStatus
from fallow.shared.events.nodes import (
    NodesReported,
    RunFailed,
    RunFinished,
    RunsReported,
    RunStarted,
    RunStatusUpdate,
    RunStopped,
)
from fallow.simulator.storage.broker import Message, message_of

SURPLUS = "field_of_a_later_release"
"""What a later release may add to a record and to any of its parts. Readers of today pass over it, but not in what the
truth is made of: there it stops them.
"""

_TABLES = frozenset({"labels", "env", "inputs"})
"""Fields whose keys are names of their own: one more is no field."""

_ALONE: dict[RunStatus, type[RunStarted | RunFinished | RunStopped]] = {
    RunStatus.RUNNING: RunStarted,
    RunStatus.FINISHED: RunFinished,
    RunStatus.STOPPED: RunStopped,
}


def with_more(message: Message) -> Message:
    """This record as a later release would write it. In what the truth is made of it writes nothing new before all
    readers know it.
    """
    kind = TYPES.get(message.type)
    value = message.value if message.event is None else encode(message.event)
    if kind is None or kind.is_command or kind.topic in STRICT or value is None:
        return message
    return replace(message, event=None, value=with_fields(value))


def with_fields(value: bytes) -> bytes:
    """This record with a field more in each of its parts: in effects, specifications, policies."""
    return msgspec.json.encode(_with_fields(msgspec.json.decode(value)))


def _with_fields(part: Any, name: str = "") -> Any:
    if isinstance(part, list):
        return [_with_fields(each, name) for each in part]
    if not isinstance(part, dict) or name in _TABLES:
        return part
    return {**{key: _with_fields(each, key) for key, each in part.items()}, SURPLUS: {"of": [1, "kind"]}}


def word_by_word(message: Message) -> Sequence[Message]:
    """This record as an earlier release would write it: each word and each report of a node in one of its own."""
    event = message.event or decode(message.type, message.value)
    if isinstance(event, RunsReported):
        return [message_of(_alone(event.cell, word), message.partition) for word in event.words]
    if isinstance(event, NodesReported):
        return [message_of(report, message.partition) for report in event.reports]
    return (message,)


def _alone(cell: str, word: RunStatusUpdate) -> CellEvent:
    stamp: dict[str, Any] = {"cell": cell, "node": word.node, "boot": word.boot, "seq": word.seq, "at_ms": word.at_ms}
    run: dict[str, Any] = {"job": word.job, "attempt": word.attempt, "rank": word.rank, "turn": word.turn}
    if word.status is RunStatus.FAILED:
        return RunFailed(**stamp, **run, exit_code=word.exit_code, infrastructure=word.infrastructure, text=word.text)
    return _ALONE[word.status](**stamp, **run)
