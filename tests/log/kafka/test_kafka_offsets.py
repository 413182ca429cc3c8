"""A record has the offset that the broker gave it, whatever offset it names itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.log.kafka.offsets import TrueOffsets
from tests.hypothesis_profile import reaches
from tests.log.worlds.raw_batches import raw_batch

DELTAS = st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 12)


def read(*batches: bytearray) -> list[tuple[int, bytes]]:
    fetched = TrueOffsets(MemoryRecords(bytes(b"".join(batches))))
    found = []
    while fetched.has_next():
        batch = fetched.next_batch()
        assert batch.validate_crc()
        found += [(record.offset, record.value) for record in batch]
    assert fetched.next_batch() is None
    return found


@given(st.lists(st.lists(DELTAS, min_size=1, max_size=8), min_size=1, max_size=3))
def test_whatever_offsets_the_records_of_a_batch_name_each_stands_where_the_broker_counted_it(
    all_deltas: Sequence[Sequence[int]],
) -> None:
    batches, base = [], 100
    is_wrong = any(list(deltas) != list(range(len(deltas))) for deltas in all_deltas)
    reaches("records name other offsets than those where they stand", is_wrong)
    for deltas in all_deltas:
        values = [str(base + number).encode() for number in range(len(deltas))]
        batches.append(raw_batch(values, deltas, base))
        base += len(deltas)
    assert read(*batches) == [(offset, str(offset).encode()) for offset in range(100, base)]


@given(st.sets(st.integers(0, 20), min_size=1, max_size=20))
def test_what_compaction_has_left_keeps_its_offsets(left: set[int]) -> None:
    deltas = sorted(left)
    reaches("records between others are gone", deltas != list(range(deltas[0], deltas[-1] + 1)))
    values = [str(delta).encode() for delta in deltas]
    assert read(raw_batch(values, deltas, 50, span=21)) == [(50 + delta, str(delta).encode()) for delta in deltas]


@pytest.mark.parametrize("deltas", [(0, 21), (-1, 3), (5, 5), (7, 2)])
def test_what_compaction_cannot_have_left_is_damage(deltas: tuple[int, int]) -> None:
    with pytest.raises(CorruptRecordException, match="in a batch between 50 and 70"):
        read(raw_batch([b"a", b"b"], deltas, 50, span=21))
