"""Every command that placement reads is carried out or refused in the very record that says that it was read.

Commands meet jobs, arrays, services and nodes in every state; records fill up, get lost, come late, and lie behind
those of other writers; other processes take over. The judge of the fault worlds reads the same log, and finds nothing
else in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import example, given
from hypothesis import strategies as st

from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.fold import fold
from fallow.shared.cluster.model.job import HOLDING, WAITING, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events import operations as o
from fallow.shared.events import proposals as p
from fallow.shared.events.base import TYPES, Event
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import (
    AfterWhen,
    Dependency,
    JobKind,
    Level,
    RetryPolicy,
    WorkerPlace,
    WorkerRange,
)
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobUpdateRequested
from fallow.shared.events.reasons import PreemptionCause, StopReason
from fallow.simulator.history.evidence import Answer, CellEvidence, LogEntry
from fallow.simulator.history.judge import judge_cell
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import (
    CELL,
    Fate,
    World,
    admitted,
    cancel,
    cell_with,
    failed,
    finished,
    joined,
    lost,
    quota,
    report,
    set_quotas,
    spec_of,
    started,
    stopped,
    update,
)

T = TypeVar("T")

NODES, NAMES, TENANTS = ("n1", "n2", "n3"), ("a", "b", "c", "d"), ("ada", "ada", "bob")
TARGETS = (*NAMES, "a.0", "b.1", "c.2", "none")
BAD_FATES = (Fate.LOST, Fate.LATE, Fate.AFTER_A_STALE_ONE, Fate.BEATEN)
ONE_FOR_ALL = ("submit", "cancel", "hold", "release", "set-policy")
"""Of these several in one record may come to one effect: the first one has brought what the others want."""
SMALL, HALF_A_RECORD = 300, 160_000

STEPS = st.one_of(
    st.tuples(st.just("commands"), st.lists(st.integers(0, 10**9), min_size=1, max_size=6), st.booleans()),
    st.tuples(st.just("submit"), st.lists(st.integers(0, 10**9), min_size=1, max_size=4), st.booleans()),
    st.tuples(
        st.sampled_from(("begin", "progress", "progress", "wait", "node", "restart")),
        st.integers(0, 10**9),
        st.booleans(),
    ),
)
TALES = st.lists(STEPS, max_size=25) | st.lists(STEPS, min_size=10, max_size=25)
"""Short ones and long ones."""


class Digits:
    """Choices that are drawn from one number, so that a shorter story has smaller numbers."""

    def __init__(self, number: int) -> None:
        self._left = number

    def below(self, limit: int) -> int:
        self._left, digit = divmod(self._left, limit)
        return digit

    def of(self, choices: tuple[T, ...]) -> T:
        return choices[self.below(len(choices))]


def submission(number: int) -> JobAdmitted:
    """A gang, an array, single workers or a service; some are held, wait for others or for a time."""
    draw = Digits(number)
    name, kind = draw.of(NAMES), draw.below(5)
    more: dict[str, Any] = {
        "workers": draw.of((1, 2, 3)),
        "tenant": draw.of(TENANTS),
        "hold": draw.below(6) == 1,
        "max_run_ms": draw.of((None, None, 500)),
        "retry": RetryPolicy(budget=draw.below(2), backoff_ms=draw.of((0, 2_000))),
    }
    if draw.below(5) == 1:
        more["after"] = (Dependency(job=draw.of(TARGETS[:6]), when=AfterWhen.ANY),)
    if draw.below(6) == 1:
        more["not_before_ms"] = 3_000
    if kind >= 2:
        more["gang"] = kind == 2
        more["array"] = draw.of((None, 1, 3))
        more["array_max_running"] = draw.of((None, 1)) if more["array"] else None
    if kind == 4:
        more.update(kind=JobKind.INFERENCE, spread=draw.of((None, Level.LEAF)), max_run_ms=None)
    spec = spec_of(name, **more)
    spec = replace(spec, after=tuple(each for each in spec.after if each.job != spec.id))
    return admitted(spec, digest=f"{draw.below(2)}" * 32)


def command(number: int) -> Event:
    """Anything that a tenant, an operator or another service may want. Only what is wanted draws its own numbers: there
    are not enough digits for all.
    """
    draw = Digits(number)
    wanted = draw.of((*OF_JOBS, *OF_NODES, *OF_CELLS, *REFUSED_BY_THIS_VERSION))
    return wanted(draw)


OF_JOBS: tuple[Callable[[Digits], Event], ...] = (
    lambda draw: cancel(draw.of(TARGETS), draw.of(TENANTS)),
    lambda draw: update(draw.of(TARGETS), draw.of(TENANTS), priority=draw.below(5)),
    lambda draw: update(draw.of(TARGETS), draw.of(TENANTS), workers=1 + draw.below(4)),
    lambda draw: update(draw.of(TARGETS), draw.of(TENANTS), workers_min=1 + draw.below(4)),
    lambda draw: update(draw.of(TARGETS), draw.of(TENANTS), max_run_ms=1 + draw.below(2_000)),
    lambda draw: o.HoldJob(cell=CELL, job=draw.of(TARGETS)),
    lambda draw: o.ReleaseJob(cell=CELL, job=draw.of(TARGETS)),
)
OF_NODES: tuple[Callable[[Digits], Event], ...] = (
    lambda draw: o.Cordon(cell=CELL, node=a_node(draw)),
    lambda draw: o.Uncordon(cell=CELL, node=a_node(draw)),
    lambda draw: o.Drain(cell=CELL, node=a_node(draw), deadline_ms=draw.of((None, 0, 3_000))),
    lambda draw: o.PlanMaintenance(cell=CELL, node=a_node(draw), begin_ms=draw.below(4_000), end_ms=draw.below(6_000)),
    lambda draw: o.CancelMaintenance(cell=CELL, node=a_node(draw)),
    lambda draw: o.DeclareLost(cell=CELL, node=a_node(draw)),
    lambda draw: o.RemoveNode(cell=CELL, node=a_node(draw)),
)
OF_CELLS: tuple[Callable[[Digits], Event], ...] = (
    lambda draw: set_quotas(quota(draw.of(("ada", "bob", "nobody")), draw.below(9))),
    lambda draw: o.RemoveQuota(cell=CELL, tenant=draw.of(TENANTS), gpu_type=draw.of((None, "gpu"))),
    lambda draw: o.SetPolicy(
        cell=CELL,
        policy=o.CellPolicy(start_timeout_wall_ms=1 + draw.below(60_000)),
        fields=("start_timeout_wall_ms",),
    ),
    lambda draw: o.SetPolicy(cell=CELL, policy=o.CellPolicy(placement=draw.of(("best-fit", "worst")))),
    lambda _draw: o.ReloadCell(cell=CELL),
)
OF_A_PROPOSAL: dict[str, Any] = {"cell": CELL, "proposal": "p1", "version": 1}
REFUSED_BY_THIS_VERSION: tuple[Callable[[Digits], Event], ...] = (
    lambda _draw: o.AdvanceTime(cell=CELL, now_ms=5),
    lambda _draw: o.OfferLoan(cell=CELL, loan="loan-1", nodes=("n1",)),
    lambda _draw: o.RecallLoan(cell=CELL, loan="loan-1", count=1, deadline_ms=9),
    lambda _draw: p.LoanProposed(**OF_A_PROPOSAL, loan="loan-1", nodes=("n1",), to_pool="train"),
    lambda _draw: p.ReclaimProposed(**OF_A_PROPOSAL, loan="loan-1", nodes=("n1",), deadline_ms=9),
    lambda _draw: p.PreemptionProposed(
        **OF_A_PROPOSAL,
        preemptor="b",
        victims=(p.Victim(job="a", attempt=1),),
        cause=PreemptionCause.PRIORITY,
        places=(WorkerRange(rank=0, node="n1", devices=(0,), gpu_milli=1_000),),
    ),
    lambda _draw: p.MigrationProposed(
        **OF_A_PROPOSAL,
        victim=p.Victim(job="a", attempt=1),
        places=(WorkerPlace(rank=0, node="n1", devices=(0,), gpu_milli=1_000, cpu_milli=1, memory_mib=1),),
    ),
    lambda _draw: p.ResizeProposed(**OF_A_PROPOSAL, resizes=(p.Resize(job="a", attempt=1, workers=2),)),
)
"""Whatever the state."""


def a_node(draw: Digits) -> str:
    return draw.of((*NODES, "n9"))


class Tale:
    """A cell of three nodes in which jobs come, run, fail and end while commands come in."""

    def __init__(self, fates: Iterable[Fate]) -> None:
        self._fates = iter(fates)
        self.world = World()
        self.world.tell(*(joined(node, 3) for node in NODES))
        self.world.on_append = lambda: next(self._fates, Fate.KEPT)

    def go(self, steps: Iterable[tuple[str, Any, bool]]) -> None:
        """Some things come together, and are decided upon together."""
        for name, drawn, rests in steps:
            getattr(self, f"_{name}")(drawn)
            if rests:
                self.world.rest()
        self.world.rest()

    def _commands(self, numbers: list[int]) -> None:
        for number in numbers:
            size = HALF_A_RECORD if number % 4 == 0 else SMALL
            self.world.hand_over(command(number // 4), size_bytes=size)

    def _submit(self, numbers: list[int]) -> None:
        self.world.hand_over(*map(submission, numbers), size_bytes=SMALL)

    def _begin(self, _number: int) -> None:
        """All that has been placed runs."""
        holding = [job for job in self.world.state.jobs.values() if job.status in HOLDING]
        said = [
            replace(started(job.id, place.node, job.attempt), **({} if job.spec.gang else ranked(place)))
            for job in holding
            for place in job.workers
            if job.status is not JobStatus.STOPPING
        ]
        self.world.hand_over(*said)

    def _progress(self, number: int) -> None:
        """The nodes of one job say that it runs, or how it ended."""
        draw, jobs = Digits(number), self.world.state.jobs
        holding = tuple(job for job in jobs.values() if job.status in HOLDING)
        if not holding:
            return
        job = draw.of(holding)
        words = (stopped,) if job.status is JobStatus.STOPPING else (started, finished, finished, failed)
        word, later = draw.of(words), draw.below(2)
        said = [
            replace(word(job.id, place.node, job.attempt), **({} if job.spec.gang else ranked(place)))
            for place in job.workers[: len(job.workers) if later else 1]
        ]
        self.world.hand_over(*said)

    def _wait(self, number: int) -> None:
        self.world.pass_time((200, 2_500, 40_000)[number % 3])

    def _node(self, number: int) -> None:
        """A node is lost, comes back as it was, or boots again."""
        draw = Digits(number)
        node, kind = draw.of(NODES), draw.below(3)
        known = self.world.state.nodes.get(node)
        boot = "boot-1" if known is None else known.boot
        self.world.hand_over((lost(node, boot), report(node, boot=boot), joined(node, 3, boot=f"boot-{number}"))[kind])

    def _restart(self, _number: int) -> None:
        self.world.restart()


def ranked(place: Any) -> dict[str, int]:
    return {"rank": place.rank, "turn": place.turn}


@dataclass
class Ledger:
    """Reads the log as a stranger would, and holds what each record has read against what stands in it."""

    inputs: dict[str, list[Event | None]]

    def __post_init__(self) -> None:
        self.state = CellState(CELL)
        self.elements: dict[str, dict[str, None]] = {}
        self.accepted: dict[tuple[str, str], None] = {}

    def unsettled(self, world: World) -> Iterator[Event]:
        """The commands that a record has read, and neither carried out nor refused."""
        for record in world.log:
            decision = record.decision
            if isinstance(decision, Decision) and decision.version == self.state.version + 1:
                self._note(decision)
                yield from self._left_over(decision)
            fold(self.state, record)

    def _read(self, decision: Decision) -> Iterator[Event]:
        for source, position in decision.inputs.items():
            for event in self.inputs[source][self.state.inputs.get(source, 0) : position]:
                if event is not None:
                    yield event

    def _note(self, decision: Decision) -> None:
        for effect in decision.effects:
            if isinstance(effect, e.JobEnqueued):
                name = effect.spec.array_of or effect.spec.id
                self.elements.setdefault(name, {})[effect.spec.id] = None
                self.accepted[name, effect.digest] = None

    def _named(self, job: str) -> dict[str, None]:
        return {job: None, **self.elements.get(job, {})}

    def _left_over(self, decision: Decision) -> list[Event]:
        """Those for one job have their answers first: any element's may be the answer to one for its array."""
        answers = Counter(key for effect in decision.effects for key in answered_by(effect))
        read = sorted(self._read(decision), key=lambda event: about(event) in self.elements)
        left = [event for event in read if not self._is_answered(event, answers)]
        return self._without_what_is_so(left, decision)

    def _is_answered(self, event: Event, answers: Counter[tuple[str, str]]) -> bool:
        """One answer is enough: the first elements may end between two commands for their array, which others answer
        then.
        """
        found = self._answers_to(event, answers)
        answers.subtract(found[:1] if kind_of(event) not in ONE_FOR_ALL else ())
        return bool(found)

    def _without_what_is_so(self, left: list[Event], decision: Decision) -> list[Event]:
        """What is so before the record, behind it or between two of its effects needs none."""
        mark = self.state.checkpoint()
        left = [event for event in left if not self._is_so(event)]
        for effect in decision.effects if left else ():
            apply(self.state, effect, decision.at_ms)
            left = [event for event in left if not self._is_so(event)]
        self.state.rollback(mark)
        return left

    def _answers_to(self, event: Event, answers: Counter[tuple[str, str]]) -> list[tuple[str, str]]:
        """An array is refused as a whole, or its elements are answered one by one."""
        kind, name = kind_of(event), about(event)
        whole = [(kind, name)] if answers[kind, name] else []
        return whole or [(kind, each) for each in self.elements.get(name, ()) if answers[kind, each]]

    def _is_so(self, event: Event) -> bool:
        """Whether what the command wants is so already, or it wants nothing of anybody."""
        jobs = [self.state.jobs[name] for name in self._named(about(event)) if name in self.state.jobs]
        over = self.state.finished.get(about(event))
        match event:
            case JobAdmitted():
                return (event.spec.id, event.digest) in self.accepted
            case JobCancelRequested():
                stops = all(j.status is JobStatus.STOPPING and j.stop_why is StopReason.CANCELLED for j in jobs)
                return stops if jobs else over is not None and over.status is JobStatus.CANCELLED
            case o.HoldJob():
                waits = [job.status for job in jobs if job.status in WAITING]
                return bool(waits) and all(status is JobStatus.HELD for status in waits)
            case o.ReleaseJob():
                waits = [job.status for job in jobs if job.status in WAITING]
                return bool(waits) and all(status is not JobStatus.HELD for status in waits)
            case o.SetPolicy():
                wanted = {name: getattr(event.policy, name) for name in event.fields}
                policy = replace(self.state.policy, **wanted) if wanted else event.policy
                return policy == self.state.policy
            case o.ReloadCell():
                return True  # the shell has read the file before placement sees the command
        return not isinstance(event, JobUpdateRequested | o.Operation | p.Proposal)


def kind_of(event: Event) -> str:
    kinds: dict[type, str] = {
        JobAdmitted: "submit",
        JobCancelRequested: "cancel",
        JobUpdateRequested: "update",
        o.HoldJob: "hold",
        o.ReleaseJob: "release",
        o.SetQuota: "set-quota",
        o.RemoveQuota: "remove-quota",
        o.SetPolicy: "set-policy",
    }
    return kinds.get(type(event), "refused or changed")


def about(event: Event) -> str:
    match event:
        case JobAdmitted():
            return event.spec.id
        case JobCancelRequested() | JobUpdateRequested() | o.HoldJob() | o.ReleaseJob():
            return event.job
        case (
            o.Cordon() | o.Uncordon() | o.Drain() | o.PlanMaintenance() | o.CancelMaintenance() | o.DeclareLost()
            | o.RemoveNode()
        ):  # fmt: skip
            return event.node
        case o.OfferLoan() | o.RecallLoan():
            return event.loan
        case p.Proposal():
            return event.proposal
        case o.AdvanceTime():
            return "advance-time"
        case o.SetQuota():
            return "set-quota"
        case o.RemoveQuota():
            return "remove-quota"
        case o.SetPolicy():
            return "set-policy"
    return ""


SETTINGS = ("set-quota", "remove-quota", "set-policy")


def answered_by(effect: e.AnyEffect) -> Iterator[tuple[str, str]]:  # noqa: C901, PLR0912 - a table
    """What an effect may be the answer to."""
    match effect:
        case e.JobEnqueued():
            yield "submit", effect.spec.array_of or effect.spec.id
        case e.JobUpdated():
            yield "update", effect.job
        case e.JobCancelled():
            yield "cancel", effect.job
        case e.JobStopping() if effect.why is StopReason.CANCELLED:
            yield "cancel", effect.job
        case e.JobRefused():
            yield effect.request, effect.job
        case e.JobHeld():
            yield "hold", effect.job
        case e.JobReleased():
            yield "release", effect.job
        case e.NodeChanged():
            yield "refused or changed", effect.spec.id
        case e.MaintenanceSet() | e.LeaseExpired() | e.NodeRemoved():
            yield "refused or changed", effect.node
        case e.QuotaSet():
            yield "set-quota", "set-quota"
        case e.QuotaRemoved():
            yield "remove-quota", "remove-quota"
        case e.PolicySet():
            yield "set-policy", "set-policy"
        case e.ProposalRefused():
            yield effect.proposal if effect.proposal in SETTINGS else "refused or changed", effect.proposal


def judged(world: World) -> list[str]:
    """What the judge of the fault worlds says of the same log."""
    log = [LogEntry(record.offset, record.value, record.chain, decision=decided(record)) for record in world.log]
    answers = [Answer(event, "jobs-0", at) for at, event in enumerate(world.inputs.get("jobs-0", ())) if event]
    return [each.text for each in judge_cell(CellEvidence(CELL, log, answers=answers)) if each.invariant == "I2"]


def decided(record: Any) -> Decision | None:
    return record.decision if isinstance(record.decision, Decision) else None


def all_is_read(world: World) -> bool:
    read = world.service.read
    return all(read.get(source) == len(stream) for source, stream in world.inputs.items())


@example(  # an element of an array ends, and both are updated in one record
    steps=[("submit", [6_986_072], True), ("progress", 5, True), ("commands", [4, 260], False)],
    fates=[],
)
@given(steps=TALES, fates=st.lists(st.sampled_from((Fate.KEPT,) * 4 + BAD_FATES), max_size=60))
def test_what_was_read_was_done_or_refused_in_the_same_record(
    steps: list[tuple[str, Any, bool]], fates: list[Fate]
) -> None:
    tale = Tale(fates)
    tale.go(steps)
    effects = [effect for decision in tale.world.decisions for effect in decision.effects]
    reaches("commands are refused", any(isinstance(effect, e.JobRefused | e.ProposalRefused) for effect in effects))
    reaches("a job runs while commands come in", any(isinstance(effect, e.JobRunning) for effect in effects))
    assert [*Ledger(tale.world.inputs).unsettled(tale.world)] == []
    assert judged(tale.world) == []
    assert all_is_read(tale.world)


def test_every_command_of_the_language_is_drawn() -> None:
    drawn = {type(command(number)) for number in range(100)}
    assert [kind for kind in TYPES.values() if issubclass(kind, o.Operation | p.Proposal) and kind not in drawn] == []


def test_a_command_to_an_array_that_ends_in_the_same_record_was_answered() -> None:
    spec = replace(spec_of("a"), array=1)
    world = cell_with(joined("n1"))
    world.tell(admitted(spec))
    world.tell(started("a.0"))
    effects = world.tell(update("a", workers=4), finished("a.0"))
    assert [type(effect) for effect in effects] == [e.JobRefused, e.JobFinished]
    assert [*Ledger(world.inputs).unsettled(world)] == []
    assert judged(world) == []


def test_an_update_of_an_array_may_be_answered_by_an_element_that_a_later_one_names() -> None:
    """The first element is over: the update of the array is told of the second one, that of the first is refused."""
    world = cell_with(joined("n1"))
    world.tell(admitted(replace(spec_of("a"), array=2)))
    world.tell(started("a.0"), finished("a.0"))
    effects = world.tell(update("a", priority=0), update("a.0", priority=0))
    assert [type(effect) for effect in effects] == [e.JobUpdated, e.JobRefused]
    assert [*Ledger(world.inputs).unsettled(world)] == []
    assert judged(world) == []


def test_two_updates_of_an_array_are_answered_by_two_elements_where_one_ends_between_them() -> None:
    world = cell_with(joined("n1", 1))
    world.run(spec_of("b"))
    world.tell(admitted(replace(spec_of("a"), array=2)))
    effects = world.tell(update("a", priority=0), cancel("a.0"), update("a", priority=0))
    assert [type(effect) for effect in effects] == [e.JobUpdated, e.JobCancelled, e.JobUpdated]
    assert [*Ledger(world.inputs).unsettled(world)] == []
    assert judged(world) == []


def test_an_update_that_was_read_beside_others_and_not_answered_is_found() -> None:
    """What was read as the first of three updates, for an array of two, has no answer: the others have one each."""
    world = cell_with(joined("n1", 1))
    world.run(spec_of("b"))
    world.tell(admitted(replace(spec_of("a"), array=2)))
    effects = world.tell(None, update("a", priority=0), update("a.1", priority=0))
    assert [effect.job for effect in effects if isinstance(effect, e.JobUpdated)] == ["a.0", "a.1"]
    world.inputs["jobs-0"][-3] = update("a", priority=0)
    assert [*Ledger(world.inputs).unsettled(world)] == [update("a", priority=0)]
