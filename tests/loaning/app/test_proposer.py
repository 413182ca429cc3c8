"""Loaning's process for one cell: what it proposes, and when it says nothing."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fallow.services.loaning.app.cell import CellProposer, LoaningMetrics
from fallow.services.loaning.settings import LoaningSettings
from fallow.shared.events.effects import JobEnqueued, JobStarted, NodeChanged, PolicySet, ProposalRefused
from fallow.shared.events.fields.values import JobSpec, NodeSpec, NodeStatus, Resources, WorkerPlace
from fallow.shared.events.operations import CellPolicy, PreemptionMode
from fallow.shared.events.proposals import PreemptionProposed
from fallow.shared.events.reasons import ProposalCode
from fallow.shared.log.reading import event_of
from fallow.shared.runtime.files.cell_file import parse_cell_file
from fallow.shared.runtime.process import Context, make_context
from tests.contract.eventually import eventually
from tests.queueing.queueing_world import LAYOUT, TEXT, Cell


def whole_node(name: str, priority: int = 0) -> JobEnqueued:
    """A job that wants a whole node."""
    spec = JobSpec(id=name, tenant="vision", priority=priority, resources=Resources(gpu_milli=8_000))
    return JobEnqueued(spec=spec, submit_ms=0, digest="0" * 32)


class Followed(Cell):
    """A cell that loaning follows: a node that is full, and a job of higher priority that waits for it."""

    def __init__(self, mode: PreemptionMode = PreemptionMode.ALL) -> None:
        super().__init__()
        self.broker.create_topic("t.proposals", 1)
        low, high = (
            JobSpec(id=job, tenant="vision", priority=priority, resources=Resources(gpu_milli=8_000))
            for job, priority in (("low", 0), ("high", 5))
        )
        place = WorkerPlace(rank=0, node="n1", devices=tuple(range(8)), gpu_milli=8_000)
        self.decide(
            PolicySet(policy=CellPolicy(preemption=mode)),
            NodeChanged(spec=NodeSpec(id="n1", pool="training", gpus=8), status=NodeStatus.READY, boot="b"),
            *(JobEnqueued(spec=spec, submit_ms=0, digest="0" * 32) for spec in (low, high)),
            JobStarted(job="low", attempt=1, workers=(place,)),
            at_ms=self.host.wall_ms(),
        )

    def proposals(self) -> list[PreemptionProposed]:
        """What loaning has said so far."""
        events = [event_of(record) for record in self.broker.partition(("t.proposals", 0)).records]
        return [event for event in events if isinstance(event, PreemptionProposed)]

    @asynccontextmanager
    async def proposing(self) -> AsyncIterator[Context[LoaningSettings]]:
        """While loaning runs."""
        context = make_context("loaning", LoaningSettings(namespace="t", look_every_wall_ms=10))
        context = dataclasses.replace(context, host=self.host)
        metrics = LoaningMetrics(context.registry)
        file = parse_cell_file(TEXT, "cell")
        work = CellProposer(context, self.log, LAYOUT, file, self.tenure, metrics)
        running = asyncio.create_task(work.run())
        try:
            yield context
        finally:
            running.cancel()
            await asyncio.wait([running])


async def test_what_yields_is_proposed_once_and_counted() -> None:
    cell = Followed()
    async with cell.proposing() as context:
        await eventually(lambda: len(cell.proposals()) == 1)
        await asyncio.sleep(0.2)
        (proposal,) = cell.proposals()
        assert (proposal.preemptor, [each.job for each in proposal.victims]) == ("high", ["low"])
        assert proposal.version == 1
        refusal = ProposalRefused(proposal=proposal.proposal, code=ProposalCode.NOT_ALLOWED)
        cell.decide(refusal, at_ms=cell.host.wall_ms())
        name, labels = "fallow_preemptions_refused_total", {"cell": "main", "code": "not_allowed"}
        await eventually(lambda: context.registry.get_sample_value(name, labels) == 1)


async def test_behind_a_refusal_it_is_proposed_again_after_a_pause() -> None:
    cell = Followed()
    async with cell.proposing():
        await eventually(lambda: len(cell.proposals()) == 1)
        refusal = ProposalRefused(proposal=cell.proposals()[0].proposal, code=ProposalCode.NOT_ALLOWED)
        cell.decide(refusal, at_ms=cell.host.wall_ms())
        await eventually(lambda: len(cell.proposals()) == 2)
    assert len({proposal.proposal for proposal in cell.proposals()}) == 2


async def test_a_process_that_does_not_own_the_cell_says_nothing() -> None:
    cell = Followed()
    cell.tenure.holds = False
    async with cell.proposing() as context:
        await eventually(lambda: context.health.progress.version.get("main") == 1)
        await asyncio.sleep(0.2)
    assert cell.proposals() == []


async def test_with_preemption_off_nothing_is_proposed() -> None:
    cell = Followed(PreemptionMode.OFF)
    async with cell.proposing() as context:
        await eventually(lambda: context.health.progress.version.get("main") == 1)
        await asyncio.sleep(0.2)
    assert cell.proposals() == []


async def test_a_cell_in_which_no_job_may_yield_is_not_folded_and_its_records_count_as_read() -> None:
    cell = Followed(PreemptionMode.OFF)
    async with cell.proposing() as context:
        await eventually(lambda: context.health.progress.version.get("main") == 1)
        cell.decide(whole_node("another"), at_ms=cell.host.wall_ms())
        await eventually(lambda: context.health.progress.cursors.get("t.decisions/0") == 2)
        assert context.health.progress.version["main"] == 1


async def test_a_policy_that_is_set_while_a_cell_rests_wakes_it_with_all_that_was_decided_meanwhile() -> None:
    cell = Followed(PreemptionMode.OFF)
    async with cell.proposing() as context:
        await eventually(lambda: context.health.progress.version.get("main") == 1)
        cell.decide(whole_node("higher", priority=9), at_ms=cell.host.wall_ms())
        cell.decide(PolicySet(policy=CellPolicy(preemption=PreemptionMode.ALL)), at_ms=cell.host.wall_ms())
        await eventually(lambda: len(cell.proposals()) == 1)
    (proposal,) = cell.proposals()
    assert (proposal.preemptor, proposal.version) == ("higher", 3)


async def test_a_cell_rests_again_when_preemption_is_turned_off() -> None:
    cell = Followed()
    async with cell.proposing() as context:
        await eventually(lambda: len(cell.proposals()) == 1)
        cell.decide(PolicySet(policy=CellPolicy()), at_ms=cell.host.wall_ms())
        await eventually(lambda: context.health.progress.version["main"] == 2)
        cell.decide(whole_node("higher", priority=9), at_ms=cell.host.wall_ms())
        await eventually(lambda: context.health.progress.cursors.get("t.decisions/0") == 3)
        assert context.health.progress.version["main"] == 2
    assert len(cell.proposals()) == 1


async def test_a_word_of_a_job_that_is_like_a_policy_wakes_a_cell_in_vain() -> None:
    cell = Followed(PreemptionMode.OFF)
    async with cell.proposing() as context:
        await eventually(lambda: context.health.progress.version.get("main") == 1)
        cell.decide(whole_node("PolicySet"), at_ms=cell.host.wall_ms())
        await eventually(lambda: context.health.progress.version["main"] == 2)
        await asyncio.sleep(0.1)
    assert cell.proposals() == []


async def test_while_kafka_takes_nothing_the_process_is_not_ready() -> None:
    cell = Followed()
    cell.log.refusals = 1
    async with cell.proposing() as context:
        await eventually(lambda: "no broker" in (context.health.waiting_for or ""))
        await eventually(lambda: context.health.waiting_for is None)
