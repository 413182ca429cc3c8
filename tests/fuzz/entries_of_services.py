"""What admission and placement get from their topics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from fallow.services.admission.service import AdmissionService
from fallow.services.placement.service import Input
from fallow.shared.cluster.fold.fold import LogRecord
from fallow.shared.events.base import TYPES, Event
from fallow.shared.events.codec.encoding import Undecodable, encode
from fallow.shared.events.decisions import INPUTS
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.nodes import RunProgressed
from fallow.shared.events.operations import ReleaseJob, ReloadCell
from fallow.shared.events.queue import QueuePlanned, StartsPlanned
from fallow.shared.events.submissions import CancelJob, SubmitJob, UpdateJob
from fallow.shared.log.machine.writer import Draft
from fallow.shared.log.reading import event_of, input_checksum
from fallow.shared.runtime.files.cell_file import parse_cell_file
from tests.fuzz.entries import Entry, golden, record_of, set_aside
from tests.fuzz.pace import NOT_COUNTED, Turns
from tests.fuzz.targets import CELL_TEXT
from tests.placement.worlds.world import CELL, World, admitted, joined, spec_of

NODES, RUNNING, WAITING = 20, 40, 100
TURNS_MAX = 40

# Admission.

COMMANDS = (SubmitJob.type, CancelJob.type, UpdateJob.type)
PROCESS = {"driver": "process", "argv": ["python", "train.py"], "env": {"A": "1"}}
FULL_JOB = {
    "id": "a",
    "tenant": "vision",
    "workers": 2,
    "resources": {"gpu_milli": 8_000},
    "pools": ["training"],
    "after": [{"job": "b"}],
    "node_labels": ["zone=a"],
    "tolerations": ["hot"],
    "run": PROCESS,
}
OWN_JOB = FULL_JOB | {"tenant": "speech"}
CHANGES = {"priority": 1, "max_run_ms": 1_000}


def as_text(command: object) -> bytes:
    return json.dumps(command).encode()


GOOD = {
    SubmitJob.type: as_text({"job": FULL_JOB}),
    CancelJob.type: as_text({"job": "a", "tenant": "vision"}),
    UpdateJob.type: as_text({"job": "a", "tenant": "vision", "changes": CHANGES}),
}
ADMITTED = {
    SubmitJob.type: "JobAdmitted",
    CancelJob.type: "JobCancelRequested",
    UpdateJob.type: "JobUpdateRequested",
}


def admission(file_text: str) -> Callable[[str, str | None, bytes], Turns]:
    """Admission by this cell file: a command of a type, by a tenant's own topic or by that of all."""
    file = parse_cell_file(file_text, "cell")

    def answer(type_: str, tenant: str | None, value: bytes) -> Turns:
        service, record = AdmissionService(file), record_of("submissions", type_, value)
        yield NOT_COUNTED
        over = service.over_rate(type_, value, tenant, 1_000)
        found: Event | Undecodable = over or service.answer(type_, value, tenant, 1_000_000)
        if isinstance(found, Undecodable):
            set_aside("admission", record, found)
            yield f"set aside: {found.reason}"
            return
        encode(service.within_rate(found, tenant, 1_000))
        yield type(found).__name__

    return answer


def admission_entries() -> Iterator[Entry]:
    text = CELL_TEXT.replace("name: training, ", "name: training, driver: process, ")
    with_rates = text.replace("own_topic: true", "own_topic: true, submissions: {per_s: 1000}")
    for each, how in ((text, ""), (with_rates, "-with-rates")):
        answer = admission(each)
        for type_ in COMMANDS:
            seeds = (golden(type_), GOOD[type_])
            yield Entry(f"admission{how}/{type_}", partial(answer, type_, None), seeds, ADMITTED[type_])
        newer = partial(answer, "fallow.job.submit.v9", None)
        yield Entry(f"admission{how}/fallow.job.submit.v9", newer, (GOOD[SubmitJob.type],), "JobRejected")
        own = as_text({"job": OWN_JOB})
        yield Entry(f"admission{how}/own-topic", partial(answer, SubmitJob.type, "speech"), (own,), "JobAdmitted")


# Placement.


class QuickWorld(World):
    """A cell whose records no other service reads: what takes time here is placement itself."""

    def check(self) -> None:
        """No service is checked."""

    def _keep(self, draft: Draft) -> None:
        self.log.append(LogRecord(len(self.log), draft.value, draft.chain, draft.decision))


def busy_cell() -> QuickWorld:
    """Nodes that are full, and jobs that run and wait."""
    world = QuickWorld()
    world.tell(*(joined(f"n{number}") for number in range(NODES)))
    world.tell(*(admitted(spec_of(f"run-{number}", 4)) for number in range(RUNNING)))
    world.tell(*(admitted(spec_of(f"wait-{number}", 1 + number % 8)) for number in range(WAITING)))
    world.tell(admitted(spec_of("held", hold=True)))
    return world


class Placement:
    """A cell that takes what comes, and a fresh one wherever something came of it."""

    def __init__(self) -> None:
        self._world: QuickWorld | None = None

    def work(self, type_: str, value: bytes) -> Turns:
        """One record, until there is nothing left to decide, or for some turns."""
        world = self._world or busy_cell()
        self._world = None
        topic, before = TYPES[type_].topic, len(world.log)
        record = record_of(topic, type_, value)
        yield NOT_COUNTED
        checksum, event = input_checksum(record), event_of(record)
        if isinstance(event, Undecodable):
            set_aside("placement", record, event)
            self._world = world
            yield f"set aside: {event.reason}"
            return
        yield "decoded"
        if isinstance(event, StartsPlanned):
            world.service.hear_plan(event)
        elif event.home() in (None, CELL):
            offset = 1_000_000
            world.service.take([Input(f"{topic}-0", offset, event, len(value), record, checksum)])
        goes_on = True
        for _ in range(TURNS_MAX):
            if not goes_on:
                break
            goes_on = world.decide()
            yield "decided" if len(world.log) > before else "let be"
        if len(world.log) == before:
            self._world = world


def placement_entries() -> Iterator[Entry]:
    for type_, cls in sorted(TYPES.items()):
        if cls.topic in (*INPUTS, StartsPlanned.topic):
            taken = "let be" if type_ in LET_BE else "decided"
            seed = at_home(golden(type_))
            if type_ == ReleaseJob.type:
                seed = seed.replace(HOME["job"].encode(), b"held")
            yield Entry(f"placement/{type_}", partial(Placement().work, type_), (seed,), taken)


LET_BE = frozenset(each.type for each in (JobRejected, ReloadCell, RunProgressed, QueuePlanned, StartsPlanned))
"""Of these nothing comes at once in a cell in which all is as it was."""


def at_home(text: bytes) -> bytes:
    """The input, changed so that it names the cell of these tests and what is there."""
    return json.dumps(_at_home(json.loads(text))).encode()


def _at_home(part: Any) -> Any:
    if isinstance(part, list):
        return [_at_home(each) for each in part]
    if not isinstance(part, dict):
        return part
    home = HOME if "attempt" not in part else HOME | {"job": runs_on_n1()}
    found = {name: home.get(name, _at_home(value)) for name, value in part.items()}
    if "boot" in found and isinstance(found.get("spec"), dict):
        found["spec"] |= {"id": found["node"], "pool": "train"}
    return found


HOME: dict[str, Any] = {
    "cell": CELL,
    "node": "n1",
    "boot": "boot-1",
    "seq": 1_000,
    "job": f"wait-{WAITING - 1}",
    "tenant": "ada",
    "status": "running",
}


@cache
def runs_on_n1() -> str:
    """A job that holds devices of the node n1."""
    return min(busy_cell().state.nodes["n1"].jobs)
