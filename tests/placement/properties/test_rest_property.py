"""The property of rest: what a writer remembers of the lines keeps nothing back that one with no memory would start."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events import nodes as n
from fallow.shared.events.base import Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, JobSpec
from tests.hypothesis_profile import reaches, rounds_of, shared_among, stories
from tests.placement.properties.test_lines_property import FILE, NODES, ROUNDS, Twins
from tests.placement.properties.test_lines_quota_property import FILE as WITH_GUARANTEES
from tests.placement.worlds.world import CELL, admitted, cancel, set_policy, update

QUEUES = (("first", "default"), ("first", "first", "night"), ("last", "night"), ("fair-strict", "night"))
"""Queues in which a head may keep others back, with one behind them."""

STARTS = (e.JobStarted, e.JobResizing)


class Restful(Twins):
    """One world, in which some jobs are no gangs, and are scaled and cancelled while they run."""

    def __init__(self, random: Random, file: CellFile) -> None:
        self.file = file
        super().__init__(random)
        self.naive = self.lines  # type: ignore[assignment]  # only its state is asked for
        self.worlds = (self.lines,)
        self.lines.listens = False
        self.queues = random.choice(QUEUES)

    def submit(self) -> None:
        """Few jobs, so that often another one stands at the head."""
        self.settle(*(admitted(self.spec(), self.submit_ms()) for _ in range(self.random.randint(1, 4))))

    def spec(self) -> JobSpec:
        spec = super().spec()
        if spec.array is None and self.random.random() < 0.6:
            kind = self.random.choice((JobKind.TRAINING, JobKind.INFERENCE))
            return replace(spec, gang=False, kind=kind, workers_min=1 if spec.workers > 1 else None)
        return spec

    def one_round(self) -> None:
        """What runs changes often."""
        self.random.choice((self.change, self.change, super().one_round))()

    def change(self) -> None:
        """Also of one job that runs: it wants more or fewer workers, or none."""
        held = [job for job in self.live(holding=True) if not job.spec.gang]
        if not held or self.random.random() < 0.3:
            super().change()
            return
        job = self.random.choice(held)
        if self.random.random() < 0.4:
            self.settle(cancel(job.id, job.spec.tenant))
        else:
            self.settle(update(job.id, job.spec.tenant, workers=self.random.randint(1, 4)))

    def nodes(self) -> None:
        """Also: how long before its maintenance a node takes no job that says nothing of its length."""
        if self.random.random() < 0.3:
            lead_ms = self.random.choice((0, 40))
            self.settle(set_policy(backfill_wait_ms=60, fair_half_life_ms=160, default_run_estimate_ms=lead_ms))
        super().nodes()

    def finish(self) -> None:
        """Some workers end well; some waiting jobs are cancelled."""
        waiting = [job for job in self.live(holding=False) if self.random.random() < 0.2]
        self.say(n.RunFinished, [job for job in self.live(holding=True) if job.status is not JobStatus.STOPPING], 0.5)
        self.settle(*(cancel(job.id, job.spec.tenant) for job in waiting))

    def fail(self) -> None:
        """Some workers end badly, and those that were told to stop have stopped."""
        held = self.live(holding=True)
        self.say(n.RunStopped, [job for job in held if job.status is JobStatus.STOPPING], 1)
        self.say(n.RunFailed, [job for job in held if job.status is not JobStatus.STOPPING], 0.2)

    def confirm(self) -> None:
        """Nodes say that workers have started."""
        self.say(n.RunStarted, self.live(holding=True), 0.5)

    def say(self, what: type[n.RunEvent], jobs: list[Job], share: float) -> None:
        """Nodes say this of so many of the workers of these jobs, of a gang's in one go."""
        said: list[Event] = []
        for job in jobs:
            boots = {place.node: self.lines.state.nodes[place.node].boot for place in job.workers}
            common: dict[str, Any] = {"cell": CELL, "seq": 1, "job": job.id, "attempt": job.attempt}
            if not job.spec.gang:
                some = [place for place in job.workers if self.random.random() < share]
                said += [
                    what(node=place.node, boot=boots[place.node], rank=place.rank, turn=place.turn, **common)
                    for place in some
                ]
            elif self.random.random() < share:
                said += [what(node=node, boot=boot, **common) for node, boot in boots.items()]
        self.settle(*said)


def rests(cell: Restful, checked: int) -> bool:
    """Whether a writer that made its lines anew would start nothing at the end of any round. The cell itself is checked
    at each decision of this round only.
    """
    cell.be_patient()
    cell.settle(*NODES)
    for number in rounds_of(cell.random, 2 * ROUNDS):
        cell.lines.checks = number == checked
        cell.one_round()
        cell.lines.service.caught_up(cell.lines.wall_ms)
        started = [effect for effect in cell.lines.rest() if isinstance(effect, STARTS)]
        assert started == [], number
    return True


@shared_among(2)
@pytest.mark.parametrize("file", [FILE, WITH_GUARANTEES], ids=["limits", "guarantees"])
@given(random=stories(2 * ROUNDS), checked=st.integers(0, 2 * ROUNDS - 1))
@example(random=Random(64), checked=64 % (2 * ROUNDS))
@example(random=Random(374), checked=374 % (2 * ROUNDS))
def test_a_writer_that_makes_its_lines_anew_starts_nothing_at_rest(
    file: CellFile, random: Random, checked: int
) -> None:
    cell = Restful(random, file)
    assert rests(cell, checked)
    waits = cell.live(holding=False)
    reaches("jobs wait beside jobs that run when lines are made anew", waits and cell.live(holding=True))
