"""What of the nodes' words is news: each record names its boot and a number, and what is older than the newest is past.

A record is repeated with a new number until it is acknowledged, so one that comes with an old number was overtaken by
its own repetition, or comes from an agent that another one has replaced.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from fallow.shared.events.base import LARGEST_INTEGER
from fallow.shared.events.nodes import NodeJoined

FORMER_BOOTS_MAX = 8
"""So many boots of a node are known as gone; a node that is older than that is taken for a new one."""


class Word(Protocol):
    """What every word of a node begins with, in a record of its own or among others."""

    @property
    def node(self) -> str:
        """Who says it."""

    @property
    def boot(self) -> str:
        """Since which start."""

    @property
    def seq(self) -> int:
        """Its number in that boot."""


class StaleReason(StrEnum):
    """Why a node's word no longer counts."""

    OLD_BOOT = "old_boot"
    OLD_SEQUENCE = "old_sequence"
    RUN_OVER = "run_over"


@dataclass(slots=True)
class Heard:
    """The newest that was read of a node's boot."""

    boot: str
    seq: int
    former: tuple[str, ...]


class Sequences:
    """The newest number of each node's boot, as far as this writer has read; not in the log, since it follows from the
    inputs.

    What is noted in a cycle is undone with its decision, because its inputs are read once more then.
    """

    def __init__(self) -> None:
        self._newest: dict[str, Heard] = {}
        self._before: list[tuple[str, Heard | None, int]] = []

    def past(
        self, event: Word, boot: str | None, *, seq: int = 0, is_lost: bool = False, most: int = LARGEST_INTEGER
    ) -> StaleReason | None:
        """Whether the event is past for a node whose boot the log knows as `boot`; None: it is news, and noted.

        A lost node may join in any other boot: if two boots were told in the wrong order, the one that lives was taken
        for a former one, and would be locked out for ever. `seq` is the number with which the log knows it to have come
        into its boot: numbers grow over boots, so that a late word is known as such by a new writer, too. `most` is the
        largest number that this word may have: a larger one, taken by a release without that bound, hides no other.
        """
        if seq > most:
            seq = 0
        if 0 < event.seq <= seq and (event.boot == boot or not is_lost):
            return StaleReason.OLD_SEQUENCE if event.boot == boot else StaleReason.OLD_BOOT
        newest = self._newest.get(event.node)
        if newest is not None and newest.boot == event.boot == boot:
            if event.seq <= newest.seq <= most:
                return StaleReason.OLD_SEQUENCE
            self._before.append((event.node, newest, newest.seq))
            newest.seq = event.seq
            return None
        return self._of_other_boot(event, boot, newest, is_lost=is_lost, most=most)

    def _of_other_boot(
        self, event: Word, boot: str | None, newest: Heard | None, *, is_lost: bool, most: int
    ) -> StaleReason | None:
        if event.boot != boot and not self._begins_boot(event, None if is_lost else newest):
            return StaleReason.OLD_BOOT
        if newest is not None and newest.boot == event.boot:
            if event.seq <= newest.seq <= most:
                return StaleReason.OLD_SEQUENCE
            self._note(event, newest, newest.former)
        else:
            self._note(event, newest, _former(event, boot, newest))
        return None

    def _begins_boot(self, event: Word, newest: Heard | None) -> bool:
        return isinstance(event, NodeJoined) and (newest is None or event.boot not in newest.former)

    def _note(self, event: Word, newest: Heard | None, former: tuple[str, ...]) -> None:
        self._before.append((event.node, newest, 0 if newest is None else newest.seq))
        self._newest[event.node] = Heard(event.boot, event.seq, former)

    def nodes(self) -> Iterable[str]:
        """The nodes of which something was read."""
        return self._newest.keys()

    def forget(self, node: str) -> None:
        """Nothing is known of the node any more."""
        self._newest.pop(node, None)

    def keep(self) -> None:
        """What was noted since the last keep or undo stays."""
        self._before.clear()

    def undo(self) -> None:
        """Forget what was noted since the last keep or undo."""
        for node, newest, seq in reversed(self._before):
            if newest is None:
                del self._newest[node]
            else:
                newest.seq = seq
                self._newest[node] = newest
        self._before.clear()


def _former(event: Word, boot: str | None, newest: Heard | None) -> tuple[str, ...]:
    if newest is not None:
        return (*newest.former, newest.boot)[-FORMER_BOOTS_MAX:]
    return (boot,) if boot is not None and boot != event.boot else ()
