"""The fingerprint of some lives of a cell: printed by a process of its own, under any PYTHONHASHSEED."""

from __future__ import annotations

from hashlib import blake2b
from itertools import repeat
from random import Random
from sys import stdout

from tests.placement.properties.test_lines_property import NODES, ROUNDS, Twins
from tests.placement.records.test_records import live
from tests.placement.worlds.world import Fate, World
from tests.placement.writer.test_chaos import STEPS, Chaos


def fingerprint() -> str:
    """A hash over all bytes of the logs."""
    plain, fair = (lived(queues) for queues in (("first", "default", "aged"), ("fair", "fair-strict", "fair-backfill")))
    chaos = Chaos(Random(11), bad_log=True)
    for _ in range(STEPS):
        chaos.step()
    hashed = blake2b(digest_size=16)
    worlds: tuple[World, ...] = (live(repeat(Fate.KEPT)), plain.lines, fair.lines, chaos.world)
    for world in worlds:
        for record in world.log:
            hashed.update(record.value)
    return hashed.hexdigest()


def lived(queues: tuple[str, ...]) -> Twins:
    """Twins whose jobs wait in these queues."""
    twins = Twins(Random(5))
    twins.queues = queues
    twins.settle(*NODES)
    for _ in range(ROUNDS):
        twins.one_round()
    return twins


if __name__ == "__main__":
    stdout.write(fingerprint())
