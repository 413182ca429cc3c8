"""The jobs that are over, by id and in the order of their ends, in little memory: a million of them is the default.

Rows are kept in segments. A segment has the ids as a list and as a table, and the rest of each row packed into bytes.
The table says only in which block of rows an id stands, so that a block's jobs share one integer. Forgetting moves a
number; a segment goes as a whole when all its jobs are forgotten. So nothing is ever copied or rehashed in one long
step, and memory stays flat once as many jobs are remembered as may be.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

from fallow.shared.cluster.fold.undo_log import Entry
from fallow.shared.cluster.model.job import FINAL, FinishedJob, JobStatus

SEGMENT_JOBS = 87_381
"""As many ids as fill a table of 2**17 places, the most dense that a table can be."""

BLOCK_JOBS = 32
"""An id is searched among so many."""

DIGEST_BYTES = 16

_ROW = struct.Struct(f"<{DIGEST_BYTES}sqqIB")
"""Digest, time of the end, time of the submission, number of the tenant, place of the status in FINAL."""

_PACK = _ROW.pack


def is_digest(text: str) -> bool:
    """Whether these are the 32 lower-case hexadecimal digits that a row holds as 16 bytes."""
    try:
        return len(text) == 2 * DIGEST_BYTES and bytes.fromhex(text).hex() == text
    except ValueError:
        return False


class _Segment:
    """The jobs numbered from `first` on. `blocks` says in which block an id stands, by the block's first row. `tenants`
    are those of its jobs: the names of tenants that are gone go with the last segment that knows them.
    """

    __slots__ = ("block", "blocks", "first", "ids", "rows", "tenant_numbers", "tenants")

    def __init__(self, first: int) -> None:
        self.first = first
        self.ids: list[str] = []
        self.blocks: dict[str, int] = {}
        self.rows = bytearray()
        self.block = 0
        self.tenants: list[str] = []
        self.tenant_numbers: dict[str, int] = {}

    def number_of(self, tenant: str) -> int:
        """The number under which its rows know a tenant that it did not know before."""
        number = self.tenant_numbers[tenant] = len(self.tenants)
        self.tenants.append(tenant)
        return number


class FinishedJobs(Mapping[str, FinishedJob]):
    """Jobs that are over, the oldest first, numbered from `first` up to but without `next`. `oldest_ms` is when the
    oldest ended, if there is one. `forgotten_ms` is when the newest submission came of those whose jobs are remembered
    no more (-1: none): of a job that was submitted later it is known whether it has run.
    """

    __slots__ = (
        "_segment_jobs",
        "_segments",
        "first",
        "forgotten_ms",
        "next",
        "oldest_ms",
    )

    def __init__(self, segment_jobs: int = SEGMENT_JOBS) -> None:
        self.first = 0
        self.next = 0
        self.oldest_ms = 0
        self.forgotten_ms = -1
        self._segment_jobs = segment_jobs
        self._segments: list[_Segment] = []

    def start_at(self, first: int, forgotten_ms: int) -> None:
        """Number the jobs from here on; there are none yet. Raises ValueError, and changes nothing, where there are
        some, and on what cannot be a number or a time.
        """
        if self._segments:
            raise ValueError("jobs are remembered already")
        if first < 0 or forgotten_ms < -1:
            raise ValueError(f"jobs cannot be numbered from {first} on, the newest forgotten one of {forgotten_ms} ms")
        self.forgotten_ms = forgotten_ms
        self.first = self.next = first

    def add(  # one call for each job that ends, without a tuple made only to be taken apart
        self, undo: list[Entry], job_id: str, tenant: str, digest: str, status: JobStatus, over_ms: int, came_ms: int
    ) -> None:
        """Remember one more. Its id must not be remembered. Raises ValueError, and changes nothing, on what cannot be a
        row.
        """
        segments = self._segments
        is_fresh = not segments or len(segments[-1].ids) == self._segment_jobs
        segment = _Segment(self.next) if is_fresh else segments[-1]
        number = segment.tenant_numbers.get(tenant)
        if number is None:
            number = segment.number_of(tenant)
        try:
            row = _PACK(bytes.fromhex(digest), over_ms, came_ms, number, FINAL.index(status))
        except struct.error as error:
            raise ValueError(f"job {job_id} cannot be remembered: {error}") from error
        if is_fresh:
            self._add_segment(segment)
        ids, blocks = segment.ids, segment.blocks
        if not len(ids) % BLOCK_JOBS:
            segment.block = len(ids)
        undo.append((_take_back, self, job_id, blocks.get(job_id)))
        ids.append(job_id)
        blocks[job_id] = segment.block
        segment.rows += row
        if self.first == self.next:
            self.oldest_ms = over_ms
        self.next += 1

    def _add_segment(self, segment: _Segment) -> None:
        if self._segments:  # the one before is full: room to grow is of no use to it
            full = self._segments[-1]
            full.ids, full.rows = full.ids[:], full.rows[:]
        self._segments.append(segment)

    def forget(self, undo: list[Entry]) -> None:
        """Forget the oldest."""
        undo.append((_forget_less, self, self.first, (self.oldest_ms, self.forgotten_ms)))
        segment, row = self._at(self.first)
        self.forgotten_ms = max(self.forgotten_ms, _ROW.unpack_from(segment.rows, row * _ROW.size)[2])
        self.first += 1
        oldest = self._segments[0]
        if self.first == oldest.first + self._segment_jobs:
            undo.append((_put_first, self._segments, None, self._segments.pop(0)))
        if self.first < self.next:
            segment, row = self._at(self.first)
            self.oldest_ms = _ROW.unpack_from(segment.rows, row * _ROW.size)[1]

    def id_of(self, number: int) -> str | None:
        """The id of the job of this number, or None if it is not remembered."""
        if not self.first <= number < self.next:
            return None
        segment, row = self._at(number)
        return segment.ids[row]

    def __contains__(self, job_id: object) -> bool:
        """Whether the job is remembered. This is asked for each job that enters, mostly in vain."""
        for segment in self._segments:
            if job_id in segment.blocks:
                return self.get(str(job_id)) is not None
        return False

    def get(self, job_id: str, default: Any = None) -> Any:
        """The job of this id, or else the default."""
        for segment in reversed(self._segments):
            block = segment.blocks.get(job_id)
            if block is None:
                continue
            # An id may have been forgotten and used again, so rows that are forgotten are passed over.
            for row in range(max(block, self.first - segment.first), min(block + BLOCK_JOBS, len(segment.ids))):
                if segment.ids[row] == job_id:
                    return self._job(segment, row)
        return default

    def __getitem__(self, job_id: str) -> FinishedJob:
        """The job of this id; KeyError if it is not remembered."""
        over: FinishedJob | None = self.get(job_id)
        if over is None:
            raise KeyError(job_id)
        return over

    def __iter__(self) -> Iterator[str]:
        """The ids, the oldest first."""
        for number in range(self.first, self.next):
            segment, row = self._at(number)
            yield segment.ids[row]

    def __len__(self) -> int:
        """How many are remembered."""
        return self.next - self.first

    def __eq__(self, other: object) -> bool:
        """Whether the same jobs are remembered under the same numbers."""
        if not isinstance(other, FinishedJobs):
            return NotImplemented
        numbers = (self.first, self.next, self.forgotten_ms)
        return numbers == (other.first, other.next, other.forgotten_ms) and [*self.in_order()] == [*other.in_order()]

    __hash__ = None  # type: ignore[assignment]  # it changes

    def in_order(self) -> Iterator[FinishedJob]:
        """The jobs, the oldest first."""
        for number in range(self.first, self.next):
            yield self._job(*self._at(number))

    def _at(self, number: int) -> tuple[_Segment, int]:
        behind = number - self._segments[0].first
        return self._segments[behind // self._segment_jobs], behind % self._segment_jobs

    def _job(self, segment: _Segment, row: int) -> FinishedJob:
        digest, over_ms, came_ms, tenant, status = _ROW.unpack_from(segment.rows, row * _ROW.size)
        return FinishedJob(segment.ids[row], segment.tenants[tenant], digest.hex(), FINAL[status], over_ms, came_ms)


def _take_back(over: FinishedJobs, job_id: str, block: int | None) -> None:
    """The newest job was not remembered; `block` is where its id stood before."""
    segment = over._segments[-1]  # noqa: SLF001 - the other half of `add`
    segment.ids.pop()
    segment.block = len(segment.ids) // BLOCK_JOBS * BLOCK_JOBS
    del segment.rows[-_ROW.size :]
    if block is None:
        del segment.blocks[job_id]
    else:
        segment.blocks[job_id] = block
    if not segment.ids:
        over._segments.pop()  # noqa: SLF001
    over.next -= 1


def _forget_less(over: FinishedJobs, first: int, times_ms: tuple[int, int]) -> None:
    over.first, (over.oldest_ms, over.forgotten_ms) = first, times_ms


def _put_first(segments: list[_Segment], _: None, oldest: _Segment) -> None:
    segments.insert(0, oldest)
