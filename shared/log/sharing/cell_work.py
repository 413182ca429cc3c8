"""The work on one cell of a process, kept apart from the work on its other cells.

A cell whose log cannot be trusted, or whose next decision no record can hold, is fenced: the work on it ends, the
process says where and why, and goes on with its other cells. Only a new start of the process lifts the fence, which is
a person's decision: perhaps this process alone has seen what the log has lost. So it also keeps its share of the group:
another process might know less, and go on.

After any other error the work begins anew from the log, as after a new start of the process, and later each time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fallow.shared.cluster.fold.fold import BehindForged, DamagedLog, OtherRelease
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.snapshot import DamagedSnapshot
from fallow.shared.log.machine.writer import UnwritableDecision
from fallow.shared.log.port import LogTruncated, UnreadableRecords
from fallow.shared.log.snapshots import NoUsableSnapshot, OtherReleasesSnapshots
from fallow.shared.runtime.errors.endings import ending_of
from fallow.shared.runtime.http.health import Fence
from fallow.shared.runtime.process import Context

AGAIN_FIRST_S, AGAIN_MAX_S = 0.5, 60.0
STEADY_MS = 120_000
"""Work that went on for so long was well: the next error begins a new row of pauses."""

FENCING = (DamagedLog, OtherRelease, DamagedSnapshot, NoUsableSnapshot, UnwritableDecision)

FENCED = "fenced: operator action needed, begin with `fallow log repair`"
FENCED_BEHIND_FORGED = (
    "fenced: operator action needed, start the process again with the cell file in force (it lacked a key, or records "
    "are forged). Where it is fenced again, begin with `fallow log repair`"
)
FENCED_BY_RELEASE = "fenced: operator action needed, the log is another release's: docs/operations.md, 'Upgrade it'"
"""Nothing in it is to be repaired."""


def fence_of(error: BaseException, layout: Layout, cell: str) -> Fence | None:
    """Where and why this error fences the cell; None for one after which the work may begin anew.

    Records that were cleaned away before they were read are no reason: a snapshot covers them.
    """
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := fence_of(inner, layout, cell))), None)
    topic, partition = layout.tp("decisions", cell)
    if isinstance(error, UnreadableRecords):
        return Fence(str(error), *error.tp, error.asked)
    if isinstance(error, LogTruncated):
        return Fence(str(error), *error.tp, error.asked) if error.asked >= error.begin else None
    if isinstance(error, FENCING):
        return Fence(str(error), topic, partition, getattr(error, "offset", None), _advice(error))
    return None


def _advice(error: BaseException) -> str:
    """What helps first where that is not the usual, else empty."""
    if isinstance(error, OtherRelease | OtherReleasesSnapshots):
        return FENCED_BY_RELEASE
    return FENCED_BEHIND_FORGED if isinstance(error, BehindForged) else ""


async def work_apart(
    context: Context[Any],
    layout: Layout,
    cell: str,
    work: Callable[[], Awaitable[None]],
    *,
    begins_anew: bool = True,
    when_fenced: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Do the work on this cell until it ends in order. A fenced cell is waited on until the process is to stop;
    `when_fenced` is what is to be done about it first.

    Raises only errors that are known to concern the whole process (a wrong cell file, for example), and all but fences
    where the work cannot begin anew in the same process.
    """
    pause, host = context.back_off(AGAIN_FIRST_S, AGAIN_MAX_S), context.host
    what = f"work on cell {cell}"
    while cell not in context.health.fences:
        begun_ms = host.monotonic_ms()
        try:
            await work()
        except Exception as error:
            host.cell_ended(cell, error)
            fence = fence_of(error, layout, cell)
            if fence is not None:
                _fence(context, cell, fence)
                if when_fenced is not None:
                    await when_fenced()
                break
            if not begins_anew or (ending_of(error) is not None and not isinstance(error, LogTruncated)):
                raise
            if host.monotonic_ms() - begun_ms > STEADY_MS:
                pause.reset()
            wait_s = pause.next_s()
            context.health.ready(cell)  # what was said by the work that has ended
            context.telemetry.cell_failures.labels(cell).inc()
            context.logger.exception("failed, begins anew", cell=cell, wait_s=round(wait_s, 1))
            context.health.not_ready(f"cell {cell}: {type(error).__name__}: {error}", what, cell=cell)
            if not await context.pause(wait_s):
                return
            context.health.ready(what)
        else:
            return
    await context.stopping.wait()


def _fence(context: Context[Any], cell: str, fence: Fence) -> None:
    context.health.ready()
    context.health.fence(cell, fence)
    context.telemetry.cell_fenced.labels(cell).set(1)
    context.logger.error(
        fence.advice or FENCED,
        cell=cell,
        reason=fence.reason,
        topic=fence.topic,
        partition=fence.partition,
        offset=fence.offset,
    )
