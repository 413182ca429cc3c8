"""The simulated world: the real services in one process, on a clock, a log, disks and a network that one seed draws."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection
from functools import partial

from fallow.shared.events.fields.values import NodeSpec
from fallow.shared.log.port import LogTruncated
from fallow.shared.log.sharing.cell_work import FENCING
from fallow.simulator.clients.client import SUBMISSION_PARTITIONS, Clients
from fallow.simulator.clients.person import Person
from fallow.simulator.clients.proposer import Proposer
from fallow.simulator.clients.readers import Readers
from fallow.simulator.drain import Drain
from fallow.simulator.draws.workload import (
    draw_setting,
    with_own_topics,
    with_run_times,
)
from fallow.simulator.draws.yielding import with_long_runs, with_yielding
from fallow.simulator.engine import Action, Chance, Engine
from fallow.simulator.history.record import Believed, Fenced, History, Violation
from fallow.simulator.machine import Machine
from fallow.simulator.oracle import Oracle
from fallow.simulator.process import Died, Part, Process, Release
from fallow.simulator.shells.part import ShellPart
from fallow.simulator.shells.services import (
    GROWN_AT_BYTES,
    SLOTS,
    admission,
    agent_of,
    executor,
    machine_of,
    metrics,
    placement,
    projector,
    queueing,
)
from fallow.simulator.storage.broker import Broker
from fallow.simulator.storage.commits import Commits
from fallow.simulator.storage.disk import Disk
from fallow.simulator.storage.groups import Groups
from fallow.simulator.storage.redis import Redis
from fallow.simulator.trouble.denied import DENIED_EVERY, DENIED_FIRST, Denied
from fallow.simulator.trouble.faults import Fault, Faults
from fallow.simulator.trouble.impostor import Impostor, signed
from fallow.simulator.trouble.mishaps import Mishaps
from fallow.simulator.trouble.poison import Poison

FAULTS_BEGIN_MS, FAULTS_END_MS = 600, 12_000
NOTICE_MS = 8_000
"""So long after the broker has lost a tail every process must have learned of it."""

TOPICS_OF_CELLS = (
    "cells", "decisions", "snapshots", "jobs", "queue", "nodes", "proposals", "operations"
)  # fmt: skip

SIGNED_EVERY = 4
"""In so many worlds one has cells with keys. It goes by the seed, so that all others stay as they were."""

ALONE = ("metrics",)
"""Services of which one process is enough: the others have two, so that one can take over."""

CANNOT_KNOW = (LogTruncated, *FENCING)
"""What ends a process that can no longer know the truth: as it should."""


class World:
    """One world, drawn from `chance`. `seed` is written down only.

    `faults` are the kinds that may happen; `keep_faults` and `keep_items` leave out all others, by their numbers, to
    find the shortest story that still fails.
    """

    def __init__(
        self,
        seed: int,
        chance: Chance,
        *,
        faults: Collection[Fault] = tuple(Fault),
        keep_faults: frozenset[int] | None = None,
        keep_items: frozenset[int] | None = None,
    ) -> None:
        self.engine = Engine(chance)
        self.faults = Faults(self.engine, faults, keep_faults)
        setting = draw_setting(self.engine)
        self.faults.draw_rates()
        is_signed = seed % SIGNED_EVERY == 0 and Fault.IMPOSTOR in faults
        file = with_run_times(with_yielding(with_own_topics(setting.file, seed), seed), seed)
        file = signed(file) if is_signed else file
        self.file, self.nodes, self.first_file = file, setting.nodes, file
        items = with_long_runs(setting, seed)
        self.items = tuple(item for item in items if keep_items is None or item.number in keep_items)
        everywhere = {cell: specs + setting.machines[cell] for cell, specs in setting.nodes.items()}
        self.history = History(seed, file, everywhere, faults_end_ms=FAULTS_END_MS)
        self.grown_bytes = chance.choice(GROWN_AT_BYTES)
        as_bytes = chance.random() < 0.1  # noqa: PLR2004 - one world of ten
        self.broker = Broker(self.engine, self.faults, as_bytes=as_bytes)
        if self.faults.decision_bytes_max is not None:
            self.broker.bytes_max = {"decisions": self.faults.decision_bytes_max}
        self.redis = Redis(self.engine, self.faults, self.broker.network)
        self.disk = Disk(self)
        self._ordinals = {cell.name: cell.ordinal for cell in setting.file.cells}
        self.oracles = [Oracle(self, cell) for cell in self._ordinals]
        self.impostor = Impostor(self) if is_signed else None
        self.faults.denies = seed % DENIED_EVERY == DENIED_FIRST and Fault.DENIED in faults
        self.denied = self.broker.denied = Denied(self) if self.faults.denies else None
        cells = len(self._ordinals)
        sizes = {"admission": SUBMISSION_PARTITIONS, "executor": SLOTS, "queueing": cells, "placement": cells}
        sizes["projector"] = sizes["metrics"] = cells
        sizes["agent"] = 0
        self.groups = Groups(self, sizes)
        self.commits = Commits(self.groups.owns)
        self.broker.topics = dict.fromkeys(TOPICS_OF_CELLS, cells)
        self.broker.topics |= {"submissions": SUBMISSION_PARTITIONS, "executor-slots": SLOTS, "dead-letters": 1}
        self.broker.topics |= {f"submissions.{tenant}": SUBMISSION_PARTITIONS for tenant in file.own_topics}
        self.clients, self.poison = Clients(self, self.items), Poison(self)
        self.readers = Readers(self)
        self.proposer = Proposer(self)
        self.processes = self._make_processes()
        self._agents = self._make_agents(setting.machines)
        self.processes += self._agents.values()
        self.mishaps = Mishaps(self)
        self.person = Person(self)
        self._drain = Drain(self)

    def _make_processes(self) -> list[Process]:
        makers: dict[str, Callable[[Process], list[Part]]] = {
            "admission": lambda process: [ShellPart(process, admission)],
            "queueing": lambda process: [ShellPart(process, queueing)],
            "placement": lambda process: [ShellPart(process, placement)],
            "projector": lambda process: [ShellPart(process, projector)],
            "metrics": lambda process: [ShellPart(process, metrics)],
            "executor": lambda process: [ShellPart(process, executor)],
        }
        return [
            Process(self, f"{name}-{number}", name, make)
            for name, make in makers.items()
            for number in range(1 if name in ALONE else 2)
        ]

    def _make_agents(self, specs: dict[str, tuple[NodeSpec, ...]]) -> dict[str, Process]:
        """An agent for each machine that has one of its own."""
        self.machines = {spec.id: machine_of(self, cell, spec) for cell in specs for spec in specs[cell]}
        return {
            node: Process(self, f"agent-{node}", "agent", partial(_agent_of, machine))
            for node, machine in self.machines.items()
        }

    def run(self) -> History:
        """Let the whole story happen. It ends when all is drained, at the first violation, or when time is over."""
        for process in self.processes:
            skew_ms = self.engine.between(-2_500, 2_500)
            if self.engine.chance.random() < self.faults.rates[Fault.SKEW] and skew_ms:
                process.skew_ms = skew_ms if self.faults.inject(Fault.SKEW, f"{process.name} by {skew_ms} ms") else 0
            self._draw_release(process)
            self.engine.at(self.engine.between(0, 200), process.start)
        self.engine.at(FAULTS_BEGIN_MS, self._faults_begin)
        self.engine.at(FAULTS_END_MS, self._faults_end)
        try:
            self.engine.run(self._is_over)
            return self._told()
        finally:
            for process in self.processes:
                process.stop()
            gc.unfreeze()  # what its processes set aside for good, as one that loads a large state does, ends with them

    def _draw_release(self, process: Process) -> None:
        release = self.engine.chance.choice((Release.EARLIER, Release.LATER))
        is_other = self.engine.chance.random() < self.faults.rates[Fault.OLD_VERSION]
        if is_other and self.faults.inject(Fault.OLD_VERSION, f"{process.name} is {release.name.lower()}"):
            process.release = release

    def _is_over(self) -> bool:
        if self._drain.is_over or self.history.violations:
            return True
        lost = self.broker.lost_tails  # if long enough ago for all to have noticed it, the world stands still
        return bool(lost) and self.engine.now_ms > lost[-1].at_ms + NOTICE_MS

    def _told(self) -> History:
        history = self.history
        history.log, history.lost_tails = self.broker.log, self.broker.lost_tails
        history.lost_inputs, history.flipped = self.broker.lost_inputs, self.broker.flipped
        history.diaries, history.injected = self.disk.diaries, self.faults.injected
        history.steps, history.end_ms = self.engine.steps, self.engine.now_ms
        history.drained, history.stuck = self._drain.is_drained, self._drain.stuck
        return history

    def _faults_begin(self) -> None:
        self.faults.is_active = True
        self.mishaps.begin()
        self.proposer.begin()

    def _faults_end(self) -> None:
        self.faults.is_active = False
        self._drain.begin()

    # What parts ask of the world.

    def ordinal(self, cell: str) -> int:
        """The partition of a cell."""
        return self._ordinals[cell]

    @property
    def is_fenced(self) -> bool:
        """Whether the broker lost what it had acknowledged, and the processes that noticed it have stopped."""
        return bool(self.broker.lost_tails) and all(process.is_fenced for process in self.processes)

    def believed(self, process: Process, cell: str, offset: int, version: int) -> None:
        """A writer takes its record to be in force: that must be true."""
        self.history.believed.append(Believed(self.engine.now_ms, process.name, cell, offset, version))
        oracle = self.oracles[self._ordinals[cell]]
        if oracle.accepted.get(offset) != version and not self.broker.lost_tails:
            self.violated("writer", f"{process.name} takes version {version} at {offset} of {cell} to be in force")

    def violated(self, invariant: str, text: str) -> None:
        """An invariant does not hold."""
        self.history.violations.append(Violation(self.engine.now_ms, invariant, text))

    # Steps, and what may happen between two of them.

    def step(self, process: Process, action: Action) -> None:
        """One step of a process; then it may die, or stand still."""
        self.engine.steps += 1
        try:
            action()
        except Died:
            return
        except Exception as error:  # noqa: BLE001 - whatever a service raises here is what the world is looking for
            self.failed(process, error)
            return
        if self.faults.happens(Fault.CRASH, process.name):
            self.crash(process)
        elif self.faults.happens(Fault.PAUSE, process.name):
            self.pause(process)

    def failed(self, process: Process, error: BaseException) -> None:
        """A process met an error that ends it. Raised by what cannot know the truth, it is what should be."""
        if isinstance(error, CANNOT_KNOW):
            self.fence(process, error)
        else:
            self.violated("crash", f"{process.name}: {_told_of(error)}")

    def cell_failed(self, process: Process, error: BaseException) -> None:
        """A process met an error that ends its work on a cell, and lives on."""
        if isinstance(error, CANNOT_KNOW):
            self._note_fence(process, error)
        else:
            self.violated("crash", f"{process.name}: {_told_of(error)}")

    def fence(self, process: Process, error: Exception) -> None:
        """The process cannot know the truth any more and stops."""
        process.stop()
        self.groups.left(process)
        self._note_fence(process, error)

    def _note_fence(self, process: Process, error: Exception) -> None:
        name = error.__class__.__name__
        self.history.fenced.append(Fenced(self.engine.now_ms, process.name, name, str(error)))
        process.is_fenced = True
        if not self.broker.lost_tails:
            self.violated("fenced", f"{process.name}: {name}: {error}")

    def crash(self, process: Process) -> None:
        """The process dies at once and is started again a little later."""
        self.person.dies(process)
        process.stop()
        self.groups.left(process)
        self.engine.after(self.engine.between(100, 3_000), process.start)

    def cut_power(self, node: str) -> None:
        """The node is gone, with everything that ran on it; it boots again a little later."""
        self.disk.die(node)
        if node in self.machines:
            self.machines[node].die()
            if self._agents[node].is_up:
                self.crash(self._agents[node])

    def pause(self, process: Process) -> None:
        """The process stands still; if for long, others take over, and it wakes as a zombie."""
        for_ms = self.engine.between(50, 4_000)
        process.pause(for_ms)
        self.groups.left(process)
        self.engine.after(for_ms + 1, lambda: self.groups.share(process.group))


def _agent_of(machine: Machine, process: Process) -> list[Part]:
    return [ShellPart(process, partial(agent_of, machine))]


def _told_of(error: BaseException) -> str:
    """The error and where it was raised, innermost last."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{code.co_qualname}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f"{error.__class__.__name__}: {error} (in {' > '.join(frames[-5:])})"
