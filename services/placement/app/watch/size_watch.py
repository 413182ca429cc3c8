"""Whether topic `decisions` takes records as large as the writer may make them. Where the broker's setting was lowered
below that, no input is at fault: a person has to set it, and until then the process is not ready.
"""

from __future__ import annotations

from fallow.services.placement.settings import PlacementSettings
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import TOPIC_BYTES, Log, LogUnavailable
from fallow.shared.runtime.process import Context

SETTING = "max.message.bytes"
ASK_EVERY_MS = 10_000
"""So often the broker is asked for the setting while it is too low."""


class SizeWatch:
    """One cell's, in a placement process."""

    def __init__(self, context: Context[PlacementSettings], log: Log, layout: Layout, cell: str) -> None:
        self.cell, self._context, self._log = cell, context, log
        self._topic = layout.topic("decisions")
        self._refused_bytes: int | None = None
        self._ask_at_ms = 0

    @property
    def _about(self) -> str:
        return f"size of decisions of {self.cell}"

    async def refused(self, size_bytes: int) -> None:
        """The topic refused a record with a value of this size, which the writer may make."""
        self._refused_bytes = min(size_bytes, self._refused_bytes or size_bytes)
        self._tell(await self._max(), size_bytes)

    def took(self, size_bytes: int) -> None:
        """The topic took a record with a value of this size."""
        if self._refused_bytes is not None and size_bytes >= self._refused_bytes:
            self._is_mended()

    async def look(self) -> None:
        """Whether the setting was mended meanwhile, where it was too low: asked now and then."""
        if self._refused_bytes is None or self._context.host.monotonic_ms() < self._ask_at_ms:
            return
        most = await self._max()
        if most is not None and most >= TOPIC_BYTES:
            self._is_mended()

    async def _max(self) -> int | None:
        self._ask_at_ms = self._context.host.monotonic_ms() + ASK_EVERY_MS
        try:
            return await self._log.topic_record_bytes_max(self._topic)
        except LogUnavailable as error:
            reason = str(error)
            self._context.logger.warning("the size of records is not known", cell=self.cell, reason=reason)
            return None

    def _tell(self, most: int | None, size_bytes: int) -> None:
        held = "could not be asked" if most is None else f"is {most}"
        why = f"topic {self._topic} refuses a decision of {size_bytes} bytes for its size: its {SETTING} {held} "
        why += f"and has to be {TOPIC_BYTES}. Set it; no job is lost meanwhile"
        self._context.logger.error("record too large for its topic", cell=self.cell, reason=why)
        self._context.health.not_ready(why, self._about, cell=self.cell)

    def _is_mended(self) -> None:
        self._refused_bytes = None
        self._context.health.ready(self._about)
