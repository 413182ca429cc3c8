"""How much a load put onto each topic, for a baseline that moves as much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fallow.local.local_cell import LocalCell
from fallow.replay.workload import CELL
from fallow.shared.events.decisions import SIGNATURE_HEADER
from fallow.shared.log.port import Record

TOPICS = ("jobs", "nodes", "decisions")
SAMPLE_RECORDS = 4_000


@dataclass(frozen=True, slots=True)
class Flow:
    """One topic's part: records for each job, the mean size of a record's value, and the headers that each carries."""

    records: float
    size_bytes: int
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def job_bytes(self) -> int:
        """Bytes of values for each job."""
        return round(self.records * self.size_bytes)


async def ends_of(stage: LocalCell) -> dict[str, int]:
    """Where each topic of the cell ends now."""
    tps = {name: stage.layout.tp(name, CELL) for name in TOPICS}
    ends = await stage.log.end_offsets(list(tps.values()))
    return {name: ends[tp] for name, tp in tps.items()}


async def flows(stage: LocalCell, before: Mapping[str, int], jobs: int) -> dict[str, Flow]:
    """What came to each topic since `before`, for so many jobs. Sizes are those of a sample. Raises LogUnavailable."""
    ends = await ends_of(stage)
    found = {}
    for name in TOPICS:
        sample = await _sample(stage, name, before[name], ends[name])
        size = sum(len(record.value or b"") for record in sample) // max(1, len(sample))
        headers = tuple((key, value.decode("ascii", "replace")) for key, value in sample[0].headers) if sample else ()
        found[name] = Flow((ends[name] - before[name]) / max(1, jobs), size, headers)
    return found


async def _sample(stage: LocalCell, name: str, begin: int, end: int) -> list[Record]:
    """Records from the middle of what came: the beginning and the end are not the usual."""
    start = begin + max(0, end - begin - SAMPLE_RECORDS) // 2
    wanted = min(SAMPLE_RECORDS, end - start)
    reader = stage.log.reader({stage.layout.tp(name, CELL): start})
    await reader.start()
    try:
        sample: list[Record] = []
        while len(sample) < wanted:
            sample += await reader.poll(wanted - len(sample))
        return sample
    finally:
        await reader.stop()


def is_signed(traffic: Mapping[str, Flow]) -> bool:
    """Whether decisions carry their writer's signature."""
    return any(name == SIGNATURE_HEADER for name, _ in traffic["decisions"].headers)
