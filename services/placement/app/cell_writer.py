"""One cell in a placement process: follow its log, and write it while the process owns it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from fallow.services.placement.app.appending import Appending
from fallow.services.placement.app.intake import PLANS, Intake
from fallow.services.placement.app.metrics import CellMetrics, PlacementMetrics
from fallow.services.placement.app.ownership import Ownership
from fallow.services.placement.app.setbacks import AWAY_FIRST_S, AWAY_MAX_S, FIRST_S, MAX_S, CannotWrite, Setbacks
from fallow.services.placement.app.showing import Showing
from fallow.services.placement.app.watch.clock_watch import ClockWatch
from fallow.services.placement.app.watch.inflow import Inflow
from fallow.services.placement.app.watch.input_watch import InputWatch
from fallow.services.placement.app.watch.nodes_watch import NodesWatch
from fallow.services.placement.service import PendingDecision, PlacementService
from fallow.services.placement.settings import PlacementSettings
from fallow.shared.cluster.fold.fold import LogRecord
from fallow.shared.cluster.model.config import CellFile, CellPart
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import INPUTS, input_name
from fallow.shared.log.follower import Follower
from fallow.shared.log.inputs.continued import ContinuedReader
from fallow.shared.log.keys.signers import begun_too_early, part_in_force
from fallow.shared.log.machine.losses import Loss, Place
from fallow.shared.log.machine.tenure import Tenure
from fallow.shared.log.opening import layout_for
from fallow.shared.log.port import Log, LogRefused, LogTruncated, LogUnavailable, Reader, TopicPartition
from fallow.shared.runtime.clocks import WallCellClock
from fallow.shared.runtime.files.cell_file import CellFileError, read_again, reloaded
from fallow.shared.runtime.process import Context, wait_for
from fallow.shared.runtime.settings import ClockKind

WAIT_MS_MAX = 1_000
"""How long a writer waits for inputs while nothing is due; it is woken when something comes."""

STANDBY_WAIT_MS = 2_500
"""How long a standby waits for news of the log before it waits anew; it is woken when it has to write."""

REST_MS_LEAST = 2

PATIENT_MS = {"nodes": 30, PLANS: 30}
"""So long may records gather before they are read. Thousands of nodes say something at any time, and it is in no hurry:
new jobs start sooner where fewer decisions come of it.
"""

NEW_JOBS = frozenset({"jobs"})
NEW_JOBS_AHEAD_MAX = 2_000
"""With so many new jobs read and not yet decided upon, no more are read."""

OTHERS_AHEAD_MAX = 20_000
"""While so many other records wait for the next decision, the rest of them waits in the log."""


CANNOT_WRITE = "cannot write the cell"
"""What the log of the process says as soon as readers would pass over what it writes, with the reason."""


Deciding = Callable[..., PlacementService]
"""What makes the service of a cell, with the arguments of `PlacementService`."""


class CellWriter:
    """Standby and writer of one cell. An exception of `run` means that the log cannot be trusted or a rule of ours is
    broken.
    """

    def __init__(
        self,
        context: Context[PlacementSettings],
        log: Log,
        file: CellFile,
        cell: CellPart,
        owned: Ownership,
        metrics: PlacementMetrics,
        deciding: Deciding = PlacementService,
    ) -> None:
        """`deciding` makes the service, which is given the state and the cell file."""
        self.cell = cell.name
        self._context, self._log = context, log
        self._layout = layout = layout_for(context, file, self._mistake_in)
        self._metrics = CellMetrics(metrics, cell.name)
        self._ordinal, self._owned, self._file, self._deciding = cell.ordinal, owned, file, deciding
        self._sources = {name: input_name(name, cell.ordinal) for name in INPUTS}
        self._stepped = context.settings.clock is ClockKind.STEPPED
        self._follower = Follower(log, layout, cell.name, before_fold=self._before_fold, service=context.service)
        self._begun_ms = self._looked_to = 0
        self._goes_on = self._has_looked = False
        self._setbacks = Setbacks(context.back_off(FIRST_S, MAX_S), context.back_off(AWAY_FIRST_S, AWAY_MAX_S))
        self._declines_until_ms: int | None = None
        self._given_up_at: int | None = None
        self._why_not: str | None = None
        self._standing_by: asyncio.Task[object] | None = None
        self._clock = ClockWatch(context, log, layout.topic("cells"), cell.ordinal)
        self._appending = Appending(context, log, layout, self._follower, self._clock, self._setbacks, self._metrics)
        self._intake = Intake(context, log, layout, cell, self._metrics, self._reload)
        self._showing = Showing(context, layout, cell.name, self._intake.sources, self._metrics)
        self._inflow: Inflow | None = None
        self._watch: InputWatch
        self._told: dict[str, Loss] = {}
        self._uncompared: tuple[int, dict[TopicPartition, tuple[Place, ...]]] = (0, {})
        self._nodes: NodesWatch
        self._service: PlacementService

    @property
    def _owns(self) -> bool:
        return self._ordinal in self._owned and not self._context.stopping.is_set()

    async def run(self) -> None:
        """Until told to stop."""
        try:
            if await wait_for(
                self._context, f"the log of cell {self.cell}", self._begin, (LogUnavailable,), about=self.cell
            ):
                await self._follow_and_write()
        finally:
            self._owned.take_again(self._ordinal)
            await self._clock.stop()
            await self._follower.stop()

    async def _follow_and_write(self) -> None:
        state, self._file = self._follower.state, await self._file_as_it_is()
        clock = self._context.clock
        speed = clock.speed if isinstance(clock, WallCellClock) else 1.0
        self._service = self._deciding(
            state,
            self._file,
            writer=self._context.instance,
            stepped=self._stepped,
            speed=speed,
            clock_bound_ms=round(self._context.settings.clock_bound_wall_ms * speed),
        )
        self._context.health.ready()
        while not self._context.stopping.is_set():
            self._look_at_key()
            try:
                if self._owns:
                    await self._write()
                else:
                    await self._stand_by()
            except LogUnavailable as error:
                await self._wait_for_the_log(error)
            except CannotWrite as error:
                self._give_up(error)

    async def _file_as_it_is(self) -> CellFile:
        """The cell file, read behind the log's: what the log puts in force from here on is newer."""
        try:
            return await read_again(self._context, self._file)
        except CellFileError as error:
            self._context.logger.warning("the cell file has an error now", cell=self.cell, reason=str(error))
            return self._file

    def _look_at_key(self) -> None:
        """A standby that could not take over is not ready either: no alert would tell before the writer is gone."""
        what, why = f"key of cell {self.cell}", self._appending.why_not_taken_over()
        if why == self._why_not:
            return
        self._why_not = why
        if why is None:
            self._context.health.ready(what)
        else:
            self._context.health.not_ready(why, what, cell=self.cell)
            self._context.logger.error(CANNOT_WRITE, cell=self.cell, reason=why)

    def _look_at_clock(self) -> None:
        """As of a key, so of a clock: the reason names what the standby could not do."""
        why = self._clock.look()
        if why is None:
            self._context.health.ready(self._about_clock)
        else:
            text = f"cell {self.cell} could not be taken over: {why}"
            self._context.health.not_ready(text, self._about_clock, cell=self.cell)

    @property
    def _about_clock(self) -> str:
        return f"clock for cell {self.cell}"

    def _is_back(self) -> None:
        self._has_all_written()
        self._setbacks.succeeded()

    def _has_all_written(self) -> None:
        """Nothing of this cell waits to be written: the process is ready, whatever became of its last try."""
        self._given_up_at = None
        self._context.health.ready(self.cell)

    async def _wait_for_the_log(self, error: LogUnavailable) -> None:
        away = "" if isinstance(error, LogRefused) else "Kafka is away: "
        self._context.health.not_ready(f"{away}{error}", self.cell, cell=self.cell)
        self._context.logger.warning("the log does not answer", cell=self.cell, reason=str(error))
        try:
            await self._context.pause(self._setbacks.failed(error))
        except CannotWrite as last:
            self._give_up(last)

    def _give_up(self, error: CannotWrite) -> None:
        """Leave the cell to another process for a while: what is in the way may be this one's alone."""
        away_s = self._setbacks.away_s()
        self._declines_until_ms = self._context.host.monotonic_ms() + round(away_s * 1_000)
        self._given_up_at = self._follower.state.version
        why = f"released the cell for {away_s:.0f} s: {error}"
        self._context.health.not_ready(why, self.cell, cell=self.cell)
        self._context.logger.error("released the cell", cell=self.cell, away_s=round(away_s), reason=str(error))
        self._metrics.given_up.inc()
        self._owned.give_up(self._ordinal)

    async def _stand_by(self) -> None:
        """Fold what comes, for a while or until `wake`: then the reader is let go, and what it had is read anew."""
        self._clock.left()
        self._look_at_clock()
        self._standing_by = asyncio.create_task(self._follower.poll(wait_ms=STANDBY_WAIT_MS))
        try:
            await asyncio.wait([self._standing_by])
            if self._standing_by.cancelled():
                await self._follower.rest()
            else:
                self._standing_by.result()
                await self._appending.sizes.look()
                self._showing.show(self._service, goes_on=self._goes_on)
        finally:
            self._standing_by.cancel()
            self._standing_by = None
        self._look_at_pause()

    def _look_at_pause(self) -> None:
        """The log answers; a cell that was given up is taken again when its time is over. Until a record of it is
        written, here or elsewhere, it stays not ready.
        """
        if self._given_up_at is not None and self._follower.state.version > self._given_up_at:
            self._given_up_at = None
        if self._given_up_at is None:
            self._context.health.ready(self.cell)
        if self._declines_until_ms is None:
            self._setbacks.log_answers()
        elif self._context.host.monotonic_ms() >= self._declines_until_ms:
            self._declines_until_ms = None
            self._owned.take_again(self._ordinal)

    def wake(self) -> None:
        """Something has changed that a writer or a standby must look at, now."""
        if self._standing_by is not None:
            self._standing_by.cancel()
        if self._inflow is not None:
            self._inflow.wake()

    def _before_fold(self, state: CellState, record: LogRecord) -> None:
        self._appending.warnings.before_fold(state, record)

    async def _begin(self) -> str | None:
        await self._follower.start()
        await self._follower.catch_up()
        return None

    # Writing.

    async def _write(self) -> None:
        """Take the cell over and decide until another process owns it."""
        await self._follower.catch_up()
        await self._appending.may_begin()
        await self._clock.begin()
        self._context.health.ready(self._about_clock)
        await self._read_anew(self._service.take_over)
        tenure = Tenure(self._follower.state, self._service)
        if not await self._take_over(tenure):
            return
        epoch = self._follower.state.epoch
        self._context.logger.info("writing", cell=self.cell, epoch=epoch, version=self._follower.state.version)
        self._tell_contradiction()
        self._metrics.writes.set(1)
        await self._follower.rest()
        inputs = {name: self._layout.tp(name, self.cell) for name in INPUTS}
        self._watch = InputWatch(
            self._context, self._log, self.cell, inputs, self._metrics, self._told, self._how_to_resume
        )
        try:
            self._inflow = inflow = await self._open_inputs(tenure)
        except BaseException:
            self._uncompared = (epoch, await self._watch.end())
            raise
        nodes = self._layout.tp("nodes", self.cell)
        self._nodes = NodesWatch(self._context, self._log, nodes, self._service, self._metrics, inflow.wake)
        try:
            if not self._stepped:
                self._nodes.begin()
            # Once an input can be read again, the cell is taken over anew, from the cursors of the state.
            while self._owns and tenure.writes and not self._watch.mended():
                await self._cycle(tenure, inflow)
            await self._leave(tenure)
            await self._watch.last_look()
            if tenure.writes:
                await self._put_fences(tenure)
        finally:
            self._inflow = None
            self._showing.left()
            await self._nodes.stop()
            self._uncompared = (epoch, await self._watch.end())
            self._metrics.writes.set(0)
            self._context.health.let_go(self._ordinal, *(self._layout.topic(name) for name in INPUTS))
            self._context.logger.info("no longer writing", cell=self.cell, epoch=epoch)
            await inflow.stop()

    async def _leave(self, tenure: Tenure[PendingDecision]) -> None:
        """Put down what the next writer would not know: once, since another process owns the cell now."""
        if self._stepped or not tenure.writes:
            return
        tenure.begin()
        tried = self._service.leave(self._now_ms(), self._context.host.monotonic_ms())
        draft = None if tried is None else self._appending.draft(tenure, tried)
        if tried is None:
            tenure.abandon()
        elif draft is not None:
            await self._appending.append(tenure, tried, draft)

    def _tell_contradiction(self) -> None:
        reason = self._service.take_contradiction()
        if reason:
            self._context.logger.warning("the cell file here is not the one in force", cell=self.cell, reason=reason)

    async def _take_over(self, tenure: Tenure[PendingDecision]) -> bool:
        """Append WriterStarted, on the newest state. Whether this process is the writer now."""
        while self._owns:
            tenure.begin()
            now_ms = self._now_ms() if self._clock.is_known else 0
            tried = self._service.start(now_ms, self._context.host.monotonic_ms())
            draft = self._appending.draft(tenure, tried)
            if draft is None:
                continue
            if await self._appending.append(tenure, tried, draft):
                self._clock.compare()
                return True
            await self._follower.catch_up()
            await self._read_anew(self._service.take_over)
        return False

    async def _open_inputs(self, tenure: Tenure[PendingDecision]) -> Inflow:
        """Every input that is whole, from the state's own cursor, or from its beginning where the state has not read
        it.
        """
        places, (epoch, earlier) = self._places(), self._uncompared
        starts = await self._watch.begin(places, earlier if self._follower.state.epoch == epoch + 1 else {})
        await self._watch.look_ahead(self._decided_upon(), places)
        await self._take_back(tenure)
        resumed = await self._resume(tenure)
        if resumed:
            earlier = await self._watch.end()
            places = self._places()
            left = {tp: read for tp, read in earlier.items() if self._intake.sources[tp[0]] not in resumed}
            starts = await self._watch.begin(places, left)
        readers: dict[str, Reader] = {}
        for name, start in starts.items():
            tp, patient_ms = self._layout.tp(name, self.cell), 0 if self._stepped else PATIENT_MS.get(name, 0)
            known = {tp: places[name]} if name in places else {}
            readers[name] = ContinuedReader(self._log, {tp: start}, known, patient_ms)
        plans = self._layout.tp(PLANS, self.cell)
        end = (await self._log.end_offsets([plans]))[plans]
        readers[PLANS] = self._log.reader({plans: end}, patient_ms=0 if self._stepped else PATIENT_MS[PLANS])
        inflow = Inflow(readers, self._context.settings.poll_records, self._refused)
        await inflow.start()
        self._goes_on = self._has_looked = False
        return inflow

    def _refused(self, error: LogTruncated) -> bool:
        """A reader was refused its position. Whether it goes on where the topic begins: that of plans does."""
        return error.tp == self._layout.tp(PLANS, self.cell) or self._watch.refused(error)

    def _places(self) -> dict[str, Place]:
        """How far the state has read each input that it has read at all."""
        state = self._follower.state
        return {
            name: Place(state.inputs[source], state.input_checksums.get(source))
            for name, source in self._sources.items()
            if source in state.inputs
        }

    async def _take_back(self, tenure: Tenure[PendingDecision]) -> None:
        """Put fences in the log that the state's cursors do not show, until they are in force or the tenure ends."""
        while self._watch.read_past and self._owns and tenure.writes:
            if not await self._put_fences(tenure):
                await self._refold()

    async def _put_fences(self, tenure: Tenure[PendingDecision]) -> bool:
        """Try once. Whether nothing is left to be put there."""
        read_past, stands = self._watch.read_past, self._places()
        for name in [name for name, place in read_past.items() if stands.get(name) == place]:
            del read_past[name]  # an append that was not acknowledged is there
        if not read_past:
            return True
        places = {self._sources[name]: (place.next_offset, place.checksum) for name, place in read_past.items()}
        tenure.begin()
        tried = self._service.fence(places, self._now_ms(), self._context.host.monotonic_ms())
        draft = self._appending.draft(tenure, tried)
        assert draft is not None, "places of inputs always fit into a record"
        if await self._appending.append(tenure, tried, draft):
            read_past.clear()
        return not read_past

    async def _resume(self, tenure: Tenure[PendingDecision]) -> dict[str, int]:
        """Put in the log what a person decided about fenced inputs, until it is in force or the tenure ends."""
        decided = self._decided_resumes()
        missing = decided
        while missing and self._owns and tenure.writes:
            tenure.begin()
            tried = self._service.resume(missing, self._now_ms(), self._context.host.monotonic_ms())
            draft = self._appending.draft(tenure, tried)
            assert draft is not None, "an offset of an input always fits into a record"
            if await self._appending.append(tenure, tried, draft):
                break
            await self._refold()
            missing = self._decided_resumes()
        return decided

    def _decided_upon(self) -> list[str]:
        """The inputs of which a person decided from where they are read on, and which still stand where they stood."""
        read = {name: self._follower.state.inputs.get(source, 0) for name, source in self._sources.items()}
        return [name for name, source in self._sources.items() if self._start(source, read[name]) is not None]

    def _start(self, source: str, read: int) -> int | None:
        """From where a person decided to read on an input that was read to here. None: there is no decision, or it was
        done: one decision is good for one loss, however long it stays in the environment.
        """
        start, times = self._context.settings.resumes.get((source, read), (None, frozenset[int]()))
        if start is None or self._follower.state.input_resumes.get((source, read, start), 0) + 1 not in times:
            return None
        return start

    def _how_to_resume(self, source: str, read: int) -> str:
        """What a person puts into FALLOW_RESUME_INPUTS of an input that was read to here."""
        done = ", ".join(
            f"from {start} once more: {source}@{read}:{start}:{times + 1}"
            for (name, at, start), times in self._follower.state.input_resumes.items()
            if (name, at) == (source, read)
        )
        return f"{source}@{read}:OFFSET" + (f" ({done})" if done else "")

    def _decided_resumes(self) -> dict[str, int]:
        """The fenced inputs that still stand where they were fenced, and from where a person decided to read on."""
        inputs = self._follower.state.inputs
        losses = {self._sources[name]: loss.next_offset for name, loss in self._watch.fenced.items()}
        starts = {source: self._start(source, read) for source, read in losses.items() if inputs.get(source, 0) == read}
        return {source: start for source, start in starts.items() if start is not None}

    async def _look_for_a_repair(self) -> None:
        """A person may repair the log while an input is fenced and this writer has nothing to write: only its next
        append would tell.
        """
        if not self._watch.is_log_look_due:
            return
        tp = self._layout.tp("decisions", self.cell)
        end = (await self._log.end_offsets([tp]))[tp]
        if end > max(self._follower.state.offset + 1, self._looked_to):
            self._looked_to = end
            await self._refold()

    async def _refold(self) -> None:
        """The newest state, behind an append that is not known to be in force."""
        await self._follower.catch_up()
        await self._follower.rest()
        await self._read_anew(self._service.caught_up)

    async def _read_anew(self, read: Callable[[int], None]) -> None:
        """Let the service look at the whole state. Nothing else of the process touches the cell meanwhile."""
        work = partial(read, self._context.host.monotonic_ms())
        await self._context.host.beside(work, f"states of {self.cell}", may_be_long=True)

    async def _cycle(self, tenure: Tenure[PendingDecision], inflow: Inflow) -> None:
        """Take in what has come, and write one record at the most: what comes meanwhile may be in the next."""
        ahead = self._service.new_jobs_pending >= NEW_JOBS_AHEAD_MAX
        wait_ms = 0 if self._goes_on else self._wait_ms()
        has_come = await inflow.wait(wait_ms, without=NEW_JOBS if ahead else frozenset())
        if not self._goes_on:
            await self._rest()
        for name in self._watch.look():
            inflow.close(name)
        await self._take_back(tenure)
        await self._look_for_a_repair()
        await self._appending.sizes.look()
        self._follower.look()
        is_fenced = "nodes" in self._watch.fenced
        has_heard = not self._stepped and self._nodes.look(is_fenced=is_fenced)
        has_heard |= self._service.nodes_fenced(is_fenced=is_fenced)
        if not (has_come or has_heard or self._goes_on or self._is_due):
            return
        self._begun_ms = self._context.host.monotonic_ms()
        is_full = self._goes_on and self._service.others_pending >= OTHERS_AHEAD_MAX
        records = [] if is_full else await inflow.take()
        if records:
            await self._intake.take(records, self._service, self._watch)
        given = {source: inflow.given[name] for name, source in self._sources.items() if name in inflow.given}
        self._service.inputs_read(given)
        await self._clock.check()
        self._has_looked = True
        self._goes_on = await self._decide(tenure)
        self._showing.show(self._service, goes_on=self._goes_on)
        self._showing.tell(self._service)

    async def _decide(self, tenure: Tenure[PendingDecision]) -> bool:
        """One decision, if there is one. Whether more is to be decided at once."""
        begin_s = self._context.host.perf_s()
        tenure.begin()
        # Nothing else of the process touches the cell meanwhile, but where it takes long other work goes on.
        decide = partial(self._service.decide, self._now_ms(), self._context.host.monotonic_ms())
        try:
            tried = await self._context.host.beside(
                decide, f"decisions of {self.cell}", may_be_long=self._service.may_decide_long
            )
        except Exception as error:  # noqa: BLE001 - whatever bug it is: one input must not stop the others for ever
            self._appending.failed(tenure, error)
            return True
        draft = None if tried is None else self._appending.draft(tenure, tried)
        self._metrics.cycle.observe(self._context.host.perf_s() - begin_s)
        if tried is not None and draft is None:
            return True
        try:
            await self._intake.set_strays_aside(self._service)
        except LogUnavailable:
            # The cell is taken over anew, from the cursors of the state.
            if draft is None:
                tenure.abandon()
            else:
                tenure.discard()
            raise
        if tried is None or draft is None:
            tenure.abandon()
            self._has_all_written()
            if not self._setbacks.is_append_refused:  # else the next refusal is one more in a row
                self._setbacks.succeeded()
            return False
        if await self._appending.append(tenure, tried, draft):
            self._is_back()
            return tried.has_more
        await self._refold()
        return True

    # Inputs and times.

    async def _reload(self) -> None:
        file = await reloaded(self._context, self._file, self._mistake_in)
        if file is not None:
            self._file = file
            self._service.reload(file)
            self._appending.go_by(file)

    def _mistake_in(self, file: CellFile) -> str | None:
        """Of this cell, held against the file in force: perhaps another process has put it there."""
        state = self._follower.state
        before = part_in_force(state.cell_file, self.cell) or self._file.cell(self.cell)
        return begun_too_early(before, file.cell(self.cell), state.version)

    def _now_ms(self) -> int:
        return self._context.clock.now_ms()

    def _wait_ms(self) -> int:
        """How long to wait for inputs: until the next due time at the most."""
        if self._service.has_pending or not self._has_looked:
            return 0
        waits_ms, due_ms = [WAIT_MS_MAX], self._service.next_cell_ms()
        if not self._stepped:
            waits_ms.append(self._nodes.due_in_ms())
        if due_ms is not None and isinstance(self._context.clock, WallCellClock):
            waits_ms.append(self._context.clock.wall_wait_ms(due_ms))
        return max(0, min(waits_ms))

    @property
    def _is_due(self) -> bool:
        """Whether there is something to decide though nothing has come."""
        due_ms = self._service.next_cell_ms()
        return self._service.has_pending or not self._has_looked or (due_ms is not None and due_ms <= self._now_ms())

    async def _rest(self) -> None:
        """Let inputs gather for half as long as the last record took: many small records cost more than one a little
        later, and the busier the machine, the more so. An idle writer answers at once.
        """
        took_ms = max(2 * REST_MS_LEAST, self._appending.wrote_ms - self._begun_ms)
        rest_ms = (
            self._appending.wrote_ms
            + min(took_ms // 2, self._context.settings.pace_wall_ms)
            - self._context.host.monotonic_ms()
        )
        if rest_ms > 0 and not self._stepped:
            await asyncio.sleep(rest_ms / 1000)
