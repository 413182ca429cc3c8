"""Whose release the decision log of a cell is, told by its last records: for whoever writes for a cell, and does not
fold its log.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fallow.shared.cluster.fold.fold import BY_ANOTHER_RELEASE
from fallow.shared.events.decisions import CHAIN_HEADER, Decision, next_chain
from fallow.shared.events.encoding import TYPE_HEADER, UNREAD, OfAnotherRelease, of_another_release
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.signatures import CellKeys
from fallow.shared.log.port import Log, Record, TopicPartition
from fallow.shared.log.reading import header, unproven_from

RECORDS_MOST = 16
"""So many of the last records are looked at: what writers that did not know the newest state have left between two
decisions is less.
"""


class _Named(msgspec.Struct):
    """What is read of a decision, of whichever release."""

    version: int = 1 << 62


_NAMED = msgspec.json.Decoder(_Named)


async def logs_of_another_release(log: Log, layout: Layout, cells: Iterable[str]) -> str | None:
    """Which of the cells have a log that another release has written, and what a person is to do; None where there is
    no such one. Raises LogUnavailable.
    """
    found: dict[str, str] = {}
    for cell in cells:
        why = await _of_another_release(log, layout.tp("decisions", cell), layout.signers.of(cell))
        if why is not None:
            found[cell] = why
    return "; ".join(f"cell {cell}: {why}" for cell, why in found.items()) or None


async def _of_another_release(log: Log, tp: TopicPartition, keys: CellKeys | None) -> str | None:
    """Judged by the last record that a writer of the cell has made: it continues the one before it, or is the first."""
    record = await _before(log, tp, (await log.end_offsets([tp]))[tp])
    for _ in range(RECORDS_MOST):
        if record is None:
            return None
        before = await _before(log, tp, record.offset)
        if before is None or _continues(before, record):
            other = release_of(record, keys)
            if other is not None:
                return f"offset {record.offset}: {other}; {BY_ANOTHER_RELEASE}"
            if header(record, TYPE_HEADER) == Decision.type and not _is_forged(record, keys):
                return None
        record = before
    return None


def release_of(record: Record, keys: CellKeys | None) -> OfAnotherRelease | None:
    """Which other release the record is of, by its own words; None where it is of this one, or no key of the cell
    proves it.
    """
    type_ = header(record, TYPE_HEADER)
    other = None if type_ == Decision.type else of_another_release(type_)
    return None if other is None or _is_forged(record, keys) else other


async def _before(log: Log, tp: TopicPartition, offset: int) -> Record | None:
    return (await log.last_before({tp: offset})).get(tp)


def _continues(before: Record, record: Record) -> bool:
    return header(record, CHAIN_HEADER) == next_chain(header(before, CHAIN_HEADER), record.value or b"")


def _is_forged(record: Record, keys: CellKeys | None) -> bool:
    unproven = unproven_from(record, keys)
    if unproven is None:
        return False
    try:
        return _NAMED.decode(record.value or b"").version >= unproven
    except UNREAD:
        return True
