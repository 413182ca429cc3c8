"""The newest records that a writer appended: it never read them, and compares them once it reads there again."""

from __future__ import annotations

from fallow.shared.log.reading import checksum_of

RECORDS_MAX, BYTES_MAX = 1_000, 4_000_000
"""So much is read again before a writer goes on after a failed append or takes its cell again: what stands before was
read by others long ago.
"""


class OwnRecords:
    """Of one partition, in the order of their offsets."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, int]] = {}
        self._bytes = 0

    @property
    def first(self) -> int | None:
        """The lowest offset of those that are to be compared; None where there are none."""
        return next(iter(self._kept), None)

    def wrote(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """The log put this record there. The oldest are forgotten above the bounds, the newest never."""
        size = len(value or b"")
        self._kept[offset] = (checksum_of(key, value), size)
        self._bytes += size
        while len(self._kept) > 1 and (len(self._kept) > RECORDS_MAX or self._bytes > BYTES_MAX):
            self._bytes -= self._kept.pop(next(iter(self._kept)))[1]

    def is_whole(self, offset: int, key: bytes | None, value: bytes | None) -> bool:
        """Whether what was read there is what was written, if any of ours was."""
        kept = self._kept.get(offset)
        return kept is None or kept[0] == checksum_of(key, value)

    def clear(self) -> None:
        """All were compared."""
        self._kept.clear()
        self._bytes = 0
