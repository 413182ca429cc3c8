"""Runs one case and says what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fallow.simulator.cases.expectations import judge, judge_at_the_end
from fallow.simulator.cases.names import Names, shuffled
from fallow.simulator.cases.schema import Case, PendingRow, Step, Submission, Then
from fallow.simulator.cases.setting import NotBuiltIn, Setting, ms
from fallow.simulator.cases.story import Story
from fallow.simulator.cases.theatre import ORIGIN_MS, Theatre
from fallow.simulator.engine import Chance


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a case: no differences, and it has passed. `remarks` are what it sets and nothing goes by."""

    name: str
    tier: str
    differences: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether everything was as expected."""
        return not self.differences


@dataclass(slots=True)
class CaseRun:
    """One case on its way. `chance` renames and shuffles what the services see of it; `stopwatch_s` tells wall time,
    for those that ask how long a decision took.
    """

    case: Case
    chance: Chance | None = None
    stopwatch_s: Callable[[], float] = lambda: 0.0
    setting: type[Setting] = Setting
    differences: list[str] = field(default_factory=list)
    _theatre: Theatre | None = None

    def run(self) -> Verdict:
        """Play it all. What the product cannot do at all ends the case, as a failure in words."""
        remarks: tuple[str, ...] = ()
        try:
            theatre = self._open(self.case)
            remarks = theatre.setting.remarks
            self._judge(theatre, "", self.case.expect.asked())
            for number, then in enumerate(self.case.then):
                self._go_on(then, number)
        except NotBuiltIn as error:
            self.differences.append(str(error))
        except Exception as error:  # noqa: BLE001 - a service that raises has failed the case, and the others go on
            self.differences.append(f"a service raised {error.__class__.__name__}: {error}")
        return Verdict(self.case.name, self.case.tier, tuple(self.differences), remarks)

    def _open(self, case: Case) -> Theatre:
        theatre = self._set_up(case)
        begin_s = self.stopwatch_s()
        self._submit(theatre, case.pending)
        theatre.verdict_wall_s = self.stopwatch_s() - begin_s
        return theatre

    def _set_up(self, case: Case) -> Theatre:
        """The cluster and what runs there: nothing is submitted yet."""
        self._theatre = theatre = Theatre(self.setting(case, Names(self.chance), self.chance), Story())
        theatre.open()
        return theatre

    def _submit(self, theatre: Theatre, rows: Iterable[PendingRow]) -> None:
        """Moment by moment; a round each. Within a moment a row that comes later has waited a millisecond less."""
        ordered = sorted(rows, key=lambda row: row.submit_s)  # which keeps the order of rows within a moment
        for row in ordered:
            theatre.names.inside("job", row.job)
        moments = {row.submit_s: [each for each in ordered if each.submit_s == row.submit_s] for row in ordered}
        for submit_s, together in moments.items():
            at_ms = ORIGIN_MS + ms(submit_s)
            theatre.advance(at_ms + len(together))
            numbered = list(enumerate(together))
            for number, row in shuffled(numbered, self.chance):
                theatre.hand_in(row, at_ms + number)
            theatre.settle()

    def _judge(self, theatre: Theatre, event: str, asked: dict[str, object]) -> None:
        where = f"after {event!r}: " if event else ""
        self.differences += [where + text for text in judge(theatre, asked)]
        if any(key == "start_order_later" for key in asked):
            self.differences += [where + text for text in judge_at_the_end(theatre, asked)]

    def _go_on(self, then: Then, number: int) -> None:
        assert self._theatre is not None
        self._theatre.story.begin_step()
        again: tuple[PendingRow, ...] = ()
        for step in then.do:
            if step.restart_case:
                again = self.case.pending
            self._do(self._theatre, step)
        # What the list changes beside beginning again holds before anything is submitted.
        self._submit(self._theatre, again)
        self._theatre.settle()
        self._judge(self._theatre, then.event or f"step {number + 1}", then.expect.asked())

    def _do(self, theatre: Theatre, step: Step) -> None:
        if step.at_s is not None:
            theatre.advance(ORIGIN_MS + ms(step.at_s))
        if step.advance_to_s is not None:
            theatre.advance(ORIGIN_MS + ms(step.advance_to_s))
        if step.advance_by_s is not None:
            theatre.advance(theatre.now_ms + ms(step.advance_by_s))
        if step.submit is not None:
            self._submit_again(theatre, step, step.submit)
        if step.finish is not None:
            theatre.finish(theatre.names.inside("job", step.finish))
        if step.delete is not None:
            theatre.delete(theatre.names.inside("job", step.delete))
        if step.node is not None and step.state is not None:
            theatre.set_node(theatre.names.inside("node", step.node), step.state)
        self._set(theatre, step)
        if step.round:
            theatre.settle()

    def _set(self, theatre: Theatre, step: Step) -> None:
        """Changes of the rules, and beginning again."""
        if step.set_queue is not None and step.quota is not None:
            theatre.set_quota(step.set_queue, quota=step.quota)
        if step.set_queue is not None and step.reclaim is not None:
            theatre.set_quota(step.set_queue, reclaim=step.reclaim)
        if step.set_policy is not None:
            asked = [key for key, value in step.set_policy if value is not None]
            raise NotBuiltIn(f"{', '.join(asked)} cannot be set while the cell runs")
        if step.restart_services:
            theatre.restart(ms(step.redeliver_s or 0))
        if step.restart_case:
            self._set_up(self._with_running(step.set_running or {}))

    def _with_running(self, counts: dict[str, int]) -> Case:
        """The case with another number of its independent jobs of these queues."""
        rows = []
        for row in self.case.running:
            count = counts.get(row.queue, row.tasks)
            if count:
                update = {"tasks": count, "nodes": row.nodes[:count]}
                rows.append(row.model_copy(update=update) if count < row.tasks else row)
        return self.case.model_copy(update={"running": tuple(rows)})

    def _submit_again(self, theatre: Theatre, step: Step, wish: Submission) -> None:
        """Once, or again and again."""
        for turn in range(step.times or 1):
            if step.from_s is not None or step.every_s is not None:
                begin_s = step.from_s if step.from_s is not None else theatre.now_s
                theatre.advance(ORIGIN_MS + ms(begin_s + turn * (step.every_s or 0)))
            now_ms = theatre.now_ms
            theatre.advance(now_ms + wish.count)
            for number in range(wish.count):
                suffix = f"-{turn}" if step.times else ""
                name = wish.job or f"{wish.prefix}{number}{suffix}"
                row = PendingRow(
                    job=name,
                    queue=wish.queue,
                    priority=wish.priority,
                    tasks=wish.tasks,
                    gpus_per_task=wish.gpus_per_task,
                    min_tasks=wish.min_tasks,
                    time_limit_s=wish.time_limit_s,
                )
                theatre.hand_in(row, now_ms + number)
            theatre.settle()
