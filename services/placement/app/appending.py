"""A writer's decisions on their way into the log of its cell: one record at a time, and what became of it."""

from __future__ import annotations

from fallow.services.placement.app.file_warnings import FileWarnings
from fallow.services.placement.app.metrics import CellMetrics
from fallow.services.placement.app.setbacks import CannotWrite, Setbacks
from fallow.services.placement.app.signing import Signing
from fallow.services.placement.app.watch.clock_watch import ClockWatch
from fallow.services.placement.app.watch.size_watch import SizeWatch
from fallow.services.placement.service import PendingDecision
from fallow.services.placement.settings import PlacementSettings
from fallow.shared.cluster.fold.fold import DamagedLog
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.log.follower import Follower
from fallow.shared.log.keys.missing_keys import ALL_FORGED, TAKING_OVER, WRITING, obstacle
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.tenure import Tenure, Verdict
from fallow.shared.log.machine.writer import Draft
from fallow.shared.log.port import (
    Appended,
    AppendRefused,
    AppendUnknown,
    Log,
    LogRefused,
    LogUnavailable,
    Outgoing,
    Refusal,
)
from fallow.shared.runtime.process import Context

IN_FORCE = "in force"
"""What the log of the process says of each decision whose record the writer takes to be the newest of its cell."""


FAILED = "decision failed; retrying with fewer inputs"
"""What it says of each decision that raised an error, before it is made once more."""


REFUSED = "the state refused the start of a job; deciding again without it, or with fewer inputs"
"""What it says of each decision that failed on a waiting job, before it is made once more."""


BEGIN_ANEW = (
    "If the cell never began and a stranger wrote these decisions, start the process with FALLOW_BEGIN_CELLS={cell}"
)


UNREADABLE = "holds a decision at offset {offset} and can be read to {end} only: a transaction is open there"
"""Why a writer waits. Services of the cell open no transactions in this topic."""


class Appending:
    """Of one cell. `wrote_ms` (monotonic) is when the log answered last, or was to."""

    def __init__(
        self,
        context: Context[PlacementSettings],
        log: Log,
        layout: Layout,
        follower: Follower,
        clock: ClockWatch,
        setbacks: Setbacks,
        metrics: CellMetrics,
    ) -> None:
        self.cell, self.wrote_ms = follower.state.cell, 0
        self._context, self._log, self._layout, self._metrics = context, log, layout, metrics
        self._follower, self._clock, self._setbacks = follower, clock, setbacks
        self.warnings = FileWarnings(context, follower.state.cell)
        self.sizes = SizeWatch(context, log, layout, self.cell)
        self._signing = Signing(layout, follower.state.cell, context.settings)
        self._told = ""
        self._tries = 0

    async def may_begin(self) -> None:
        """Before this process takes the cell over. Raises CannotWrite where readers would not believe it, or where it
        would begin behind what it believes, beside a writer that goes by the file in force.
        """
        await self._signing.renew()
        if why := self.why_not_taken_over():
            raise CannotWrite(why)

    def go_by(self, file: CellFile) -> None:
        """As the writer, by this file from now on. Raises CannotWrite where readers would not believe it any more."""
        self._signing.go_by(file)
        if why := self.why_not():
            raise CannotWrite(why)

    def why_not_taken_over(self) -> str | None:
        """Why this process could not take the cell over, as far as it knows its keys; None where it could."""
        return self._obstacle(TAKING_OVER) or self._signing.why_not()

    def why_not(self) -> str | None:
        """Why readers would pass over what this process writes, as far as it knows; None where they would not."""
        return self._obstacle(WRITING) or self._signing.why_not()

    def _obstacle(self, work: tuple[str, ...]) -> str | None:
        """What is known against this work. A person may have the cell begin though nothing in its log is proven."""
        if self.cell in self._context.settings.begins:
            work = tuple(each for each in work if each != ALL_FORGED)
        why = obstacle(work, self._follower, self._context.settings.cell_file)
        return f"{why}. {BEGIN_ANEW.format(cell=self.cell)}" if why and self._follower.is_all_forged else why

    def draft(self, tenure: Tenure[PendingDecision], tried: PendingDecision) -> Draft | None:
        """The record of a decision; None where no reader could read it: it is decided again with fewer inputs, or
        without the waiting job on which it failed.
        """
        draft = tenure.draft(tried)
        if isinstance(draft, Draft):
            return draft
        if tried.refused is not None:
            job, rule = tried.refused.job, tried.refused.rule
            self._context.logger.error(REFUSED, cell=self.cell, job=job, reason=rule)
            self._metrics.stale("illegal")
            return None
        self._context.logger.warning(
            "decision too large or invalid; retrying with fewer inputs",
            cell=self.cell,
            inputs=len(tried.taken),
            effects=len(tried.effects),
            reason=str(draft),
        )
        self._metrics.stale("unwritable")
        return None

    def failed(self, tenure: Tenure[PendingDecision], error: Exception) -> None:
        """A decision raised this error: it is decided again with fewer inputs. Raises it where that leads nowhere."""
        tenure.failed(error)
        reason = f"{type(error).__name__}: {error}"
        self._context.logger.error(FAILED, cell=self.cell, reason=reason, exc_info=error)
        self._metrics.stale("failed")

    async def append(self, tenure: Tenure[PendingDecision], tried: PendingDecision, draft: Draft) -> bool:
        """Whether the decision is in force. Raises CannotWrite where this process is not to try again."""
        if why := self.why_not():
            tenure.discard()
            raise CannotWrite(why)
        begin_s = self._context.host.perf_s()
        failure = await self._look_before(tenure)
        message = self._outgoing(draft)
        sent_ms = self._context.host.monotonic_ms()
        answer = failure or await self._log.append(message)
        self._metrics.append.observe(self._context.host.perf_s() - begin_s)
        self.wrote_ms = self._context.host.monotonic_ms()
        if isinstance(answer, Appended):
            self._clock.stamped(answer, sent_ms)
        verdict = tenure.answered(draft, tried, answer, self.wrote_ms)
        if verdict is Verdict.IN_FORCE:
            self._setbacks.append_taken()
            self._is_clear()
            self._follower.wrote(message)
            self.sizes.took(len(draft.value))
            self._metrics.in_force(draft.decision.effects)
            self.warnings.in_force(draft)
            self._context.logger.debug(
                IN_FORCE, cell=self.cell, version=draft.decision.version, offset=self._follower.state.offset
            )
            return True
        if isinstance(answer, AppendUnknown):
            self.warnings.unanswered(draft)
        self._metrics.stale(verdict.value)
        version = draft.decision.version
        self._context.logger.info("decision not in force", cell=self.cell, version=version, why=verdict.value)
        if isinstance(answer, AppendUnknown | AppendRefused):
            if isinstance(answer, AppendRefused) and answer.code is Refusal.TOO_LARGE:
                await self.sizes.refused(len(draft.value))
            if verdict is not Verdict.TOO_LARGE or not tenure.writes:
                await self._bear(answer, verdict)
        elif isinstance(answer, Appended):
            await self._until_readable(answer.offset)
        return False

    async def _look_before(self, tenure: Tenure[PendingDecision]) -> AppendUnknown | AppendRefused | None:
        """None where the record may be appended; where the log does not say what stands before it, or refuses to, it is
        as if the append had had no answer, or that one. Raises DamagedLog: no reader reads what is written behind a
        record that is not the one this process knows.
        """
        try:
            await self._follower.before_append()
        except LogRefused as error:
            return AppendRefused(error.code, str(error))
        except LogUnavailable as error:
            return AppendUnknown(str(error))
        except DamagedLog:
            tenure.discard()
            raise
        return None

    async def _until_readable(self, offset: int) -> None:
        """Wait until the log can be read to this record, which stands behind others than the writer knows: what it
        decides before that would be void, again and again. Raises CannotWrite where that takes long.
        """
        tp = self._layout.tp("decisions", self.cell)
        while (end := (await self._log.end_offsets([tp]))[tp]) <= offset:
            reason = f"{tp[0]}/{tp[1]} {UNREADABLE.format(offset=offset, end=end)}"
            await self._bear(AppendUnknown(reason), Verdict.UNKNOWN)
        self._is_clear()

    async def _bear(self, answer: AppendUnknown | AppendRefused, verdict: Verdict) -> None:
        """Wait before the next try. Raises CannotWrite where there is to be none."""
        self._tell(verdict.value, answer.reason)
        wait_s = self._setbacks.failed(answer)
        if self._setbacks.is_serious:
            why = f"decisions do not get into the log: {answer.reason}"
            self._context.health.not_ready(why, self.cell, cell=self.cell)
        await self._context.pause(wait_s)

    def _tell(self, why: str, reason: str) -> None:
        """What is in the way, once for as long as it is: the tries behind it are counted, and their end is told."""
        self._tries += 1
        if reason != self._told:
            self._told = reason
            self._context.logger.warning("append without success", cell=self.cell, why=why, reason=reason)

    def _is_clear(self) -> None:
        """What was in the way is over."""
        if self._tries:
            self._context.logger.info("the log takes decisions again", cell=self.cell, tries=self._tries)
        self._told, self._tries = "", 0

    def _outgoing(self, draft: Draft) -> Outgoing:
        decision = draft.decision
        return self._layout.outgoing(
            decision,
            id=f"{self.cell}/{decision.version}/{decision.epoch}",
            source=self._context.instance,
            wall_ms=self._context.host.wall_ms(),
            more=draft.headers(self._signing.sign),
            value=draft.value,
        )
