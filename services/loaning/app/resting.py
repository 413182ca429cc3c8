"""A cell in which no job may yield: its log is read, and not looked into, until a record sets another policy.

To decode and fold each decision costs as much as in any other service. A cell has `preemption: off` unless an operator
sets it, so nothing is paid for it there.
"""

from __future__ import annotations

from fallow.shared.log.port import Log, LogTruncated, Reader, TopicPartition

SETS_A_POLICY = b"PolicySet"
"""Stands in each record that sets the policy of a cell. It may stand in a text of a job, too: then a cell is followed
for a moment in vain.
"""

PATIENT_MS = 500
"""So long may decisions gather: whoever sets a policy does not wait for this reader."""

RECORDS_MAX = 500


class Resting:
    """Reads one partition of decisions from an offset on."""

    def __init__(self, log: Log, tp: TopicPartition, offset: int) -> None:
        self._tp, self._offset = tp, offset
        self._reader: Reader = log.reader({tp: offset}, patient_ms=PATIENT_MS)

    @property
    def next_offset(self) -> int:
        """The offset of the next record to look at."""
        return self._offset

    async def start(self) -> None:
        """Begin to read. Raises LogUnavailable."""
        await self._reader.start()

    async def stop(self) -> None:
        """Let go of the log."""
        await self._reader.stop()

    async def is_over(self, wait_ms: int) -> bool:
        """Whether a record may have set a policy, or the log no longer holds what comes next: then the cell is to be
        followed again, from where the rest began. Waits so long at most.
        """
        try:
            records = await self._reader.poll(RECORDS_MAX, wait_ms)
        except LogTruncated:
            return True
        if records:
            self._offset = records[-1].offset + 1
        return any(record.value is not None and SETS_A_POLICY in record.value for record in records)
