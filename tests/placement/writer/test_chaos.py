"""Words of nodes get lost, come twice, late and from boots that are gone; records get lost and writers are replaced.

After each record nothing may be wrong, and when at last every node tells all it knows, every job is over or waits for a
reason.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given

from fallow.shared.cluster.model.job import HOLDING, JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events import nodes as n
from fallow.shared.events.base import Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import RUN_IS_OVER, ObservedRun, Resources, RetryPolicy, RunStatus
from fallow.shared.events.operations import Cordon, Drain, HoldJob, ReleaseJob, Uncordon
from tests.hypothesis_profile import Story, reaches, stories
from tests.placement.worlds.world import CELL, FILE, Fate, World, admitted, cancel, joined, quota, set_quotas, spec_of

NODES = ("n1", "n2", "n3", "n4")
STEPS = 60
ROUNDS_MAX = 60


class Agent:
    """One node as it really is: its boot, its runs, and the numbers of its words."""

    def __init__(self, node: str) -> None:
        self.node, self.boots, self.seq = node, 1, 0
        self.runs: dict[tuple[str, int], RunStatus] = {}

    @property
    def boot(self) -> str:
        return f"{self.node}-boot-{self.boots}"

    def number(self) -> int:
        self.seq += 1
        return self.seq

    def reboot(self) -> None:
        self.boots, self.seq, self.runs = self.boots + 1, 0, {}

    def joins(self) -> Event:
        return replace(joined(self.node, 4, boot=self.boot), seq=self.number())

    def reports(self) -> Event:
        observed = tuple(ObservedRun(job=job, attempt=at, status=status) for (job, at), status in self.runs.items())
        return n.NodeReport(cell=CELL, node=self.node, boot=self.boot, seq=self.number(), observed=observed)

    def lost(self) -> Event:
        return n.NodeLost(cell=CELL, node=self.node, boot=self.boot, seq=self.number())

    def word(self, run: tuple[str, int]) -> Event:
        """The news of one run."""
        kinds: dict[RunStatus, type[n.RunEvent]] = {
            RunStatus.RUNNING: n.RunStarted,
            RunStatus.FINISHED: n.RunFinished,
            RunStatus.FAILED: n.RunFailed,
            RunStatus.STOPPED: n.RunStopped,
        }
        cls, (job, attempt) = kinds[self.runs[run]], run
        return cls(cell=CELL, node=self.node, boot=self.boot, seq=self.number(), job=job, attempt=attempt)


class Chaos:
    """A cell, four nodes, and a bad network between them."""

    def __init__(self, random: Random, *, bad_log: bool) -> None:
        self.random = random
        self.world = World(FILE, on_append=self.fate if bad_log else None)
        self.world.numbers_words = False
        self.world.tell(set_quotas(quota("ada", 12)))
        self.agents = {node: Agent(node) for node in NODES}
        self.mail: list[Event] = [agent.joins() for agent in self.agents.values()]
        self.submitted = 0

    def fate(self) -> Fate:
        bad = (Fate.LOST, Fate.LATE, Fate.AFTER_A_STALE_ONE, Fate.BEATEN)
        return self.random.choice((Fate.KEPT,) * 6 + bad)

    def step(self) -> None:
        often = (self.submit,) * 3 + (self.work,) * 6 + (self.deliver,) * 5
        self.random.choice(often + (self.order,) * 2 + (self.shake, self.wait))()

    def submit(self) -> None:
        self.submitted += 1
        spec = spec_of(
            f"job-{self.submitted}",
            tenant=self.random.choice(("ada", "bob")),
            workers=self.random.choice((1, 1, 2, 5)),
            priority=self.random.randint(0, 2),
            resources=Resources(gpu_milli=self.random.choice((300, 1000, 2000))),
            retry=RetryPolicy(budget=self.random.randint(0, 2), backoff_ms=self.random.choice((0, 20))),
            max_run_ms=self.random.choice((None, None, 300)),
        )
        self.world.tell(*(admitted(spec) for _ in range(self.random.choice((1, 1, 2)))))

    def wanted(self, agent: Agent) -> dict[tuple[str, int], bool]:
        """The runs that the log wants on a node, and whether each shall stop."""
        jobs = [job for job in self.world.state.jobs.values() if agent.node in job.runs]
        return {
            (job.id, job.attempt): job.status is JobStatus.STOPPING
            for job in jobs
            if self.world.state.nodes[agent.node].boot == agent.boot
        }

    def work(self) -> None:
        """A node gets on with its runs, and says so."""
        agent = self.agents[self.random.choice(NODES)]
        wanted = self.wanted(agent)
        for run in [run for run in agent.runs if run not in wanted]:
            del agent.runs[run]
        for run, shall_stop in wanted.items():
            before = agent.runs.get(run)
            if before in RUN_IS_OVER:
                continue
            ends = (RunStatus.RUNNING, RunStatus.FINISHED, RunStatus.FAILED)
            agent.runs[run] = RunStatus.STOPPED if shall_stop else self.random.choice(ends[before is not None :])
            self.mail.append(agent.word(run))
        self.mail.append(agent.reports())

    def deliver(self) -> None:
        """Some words arrive, some of them twice, in any order; some never."""
        self.random.shuffle(self.mail)
        count = self.random.randint(0, len(self.mail))
        arriving, self.mail = self.mail[:count], self.mail[count:]
        arriving = [word for word in arriving if self.random.random() < 0.8]
        self.mail += [word for word in arriving if self.random.random() < 0.2]
        self.world.tell(*arriving)

    def order(self) -> None:
        """Tenants and operators want something."""
        job, node = f"job-{self.random.randint(1, self.submitted + 1)}", self.random.choice(NODES)
        wishes: tuple[Event, ...] = (
            *(cancel(job, tenant) for tenant in ("ada", "bob", "ada", "bob")),
            HoldJob(cell=CELL, job=job),
            ReleaseJob(cell=CELL, job=job),
            Cordon(cell=CELL, node=node),
            Uncordon(cell=CELL, node=node),
            Drain(cell=CELL, node=node, deadline_ms=self.world.now_ms + 100),
        )
        self.world.tell(self.random.choice(wishes))

    def shake(self) -> None:
        """A node reboots, or a person says that it is gone, or a new process takes over the writing."""
        agent = self.agents[self.random.choice(NODES)]
        kind = self.random.randint(0, 3)
        if kind == 0:
            agent.reboot()
            self.mail.append(agent.joins())
        elif kind == 1:
            self.mail.append(agent.lost())
        elif kind == 2:
            self.mail += [agent.reports(), agent.joins()]
        else:
            self.world.restart()

    def wait(self) -> None:
        self.world.pass_time(self.random.choice((10, 150, 50_000)))

    def tell_all(self) -> None:
        """Every node tells all it knows, and ends what the log still wants of it."""
        for agent in self.agents.values():
            known = self.world.state.nodes.get(agent.node)
            if known is None or known.boot != agent.boot:
                self.world.tell(agent.joins())
            agent.runs = {
                run: RunStatus.STOPPED if shall_stop else RunStatus.FINISHED
                for run, shall_stop in self.wanted(agent).items()
            }
            self.world.tell(agent.reports())
        self.world.pass_time(5_000)
        self.world.tell(*(Uncordon(cell=CELL, node=node) for node in NODES))

    def is_quiet(self) -> bool:
        return not [job for job in self.world.state.jobs.values() if job.status in HOLDING]


def come_to_rest(chaos: Chaos) -> None:
    for _ in range(ROUNDS_MAX):
        chaos.tell_all()
        if chaos.is_quiet():
            return
    raise AssertionError("some job neither ends nor waits")


@pytest.mark.parametrize("bad_log", [False, True])
@given(story=stories(STEPS))
def test_in_chaos_nothing_is_lost_and_nothing_is_done_twice(bad_log: bool, story: Story) -> None:
    chaos = Chaos(story, bad_log=bad_log)
    for _ in story.rounds():
        chaos.step()
    chaos.world.on_append = lambda: Fate.KEPT
    come_to_rest(chaos)
    chaos.world.check()
    left = chaos.world.state.jobs.values()
    effects = [effect for decision in chaos.world.decisions for effect in decision.effects]
    reaches("a job is tried again in chaos", any(isinstance(effect, e.JobRequeued) for effect in effects))
    assert [job.id for job in left if job.status is not JobStatus.HELD and job.deferred is None] == []
    assert len(left) + len(chaos.world.state.finished) == chaos.submitted
