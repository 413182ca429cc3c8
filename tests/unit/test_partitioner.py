"""Our partitioner is Kafka's."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as kafkas_murmur2
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.log.machine.partitioner import murmur2, partition_of
from tests.hypothesis_profile import reaches


@given(st.binary(max_size=100))
def test_the_hash_is_that_of_kafkas_clients(key: bytes) -> None:
    reaches("a key ends within a block of four bytes", len(key) > 4 and len(key) % 4)
    assert murmur2(key) == kafkas_murmur2(key)


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_every_key_has_a_partition(key: bytes, partitions: int) -> None:
    reaches("a key belongs to another partition than the first", partition_of(key, partitions) > 0)
    assert 0 <= partition_of(key, partitions) < partitions


def test_a_topic_without_partitions_takes_no_key() -> None:
    with pytest.raises(ValueError, match="partitions: 0"):
        partition_of(b"k", 0)
