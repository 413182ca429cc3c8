"""What placement sets aside in a world is lost, but for the job on which the world lets its decisions fail."""

from __future__ import annotations

import pytest

from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.events.base import Event
from fallow.shared.events.jobs import AdmittedJob, JobAdmitted, JobsAdmitted
from fallow.shared.events.operations import HoldJob
from fallow.shared.events.reasons import DeadLetterReason
from fallow.shared.log.inputs.dead_letters import dead_letter
from fallow.shared.log.machine.consumer import Dead
from fallow.shared.log.port import Record
from fallow.simulator.history.of_world import evidence_of
from fallow.simulator.history.record import History, Injected, Logged
from fallow.simulator.trouble.faults import Fault
from tests.cluster.worlds.examples import enqueued, node
from tests.simulator.history.story import CELL, admitted, with_gang

FILE = CellFile(
    cells=(CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=2),)),), tenants=(Tenant(name="acme"),)
)
SPECS = (node("n1", gpus=2).spec, node("n2", gpus=2).spec)


def of_one_record(*jobs: str) -> JobsAdmitted:
    """Several jobs that one record admits."""
    several = [admitted(job) for job in jobs]
    return JobsAdmitted(cell=CELL, jobs=tuple(AdmittedJob(spec=j.spec, submit_ms=0, digest=j.digest) for j in several))


def broken(event: Event, reason: DeadLetterReason, *poisoned: str, enqueues: tuple[str, ...] = ()) -> list[str]:
    """What the judge finds where this first record of its topic was read and set aside."""
    history = History(0, FILE, {CELL: SPECS})
    topic = "operations" if isinstance(event, HoldJob) else "jobs"
    history.log[topic, 0] = [Logged(topic, 0, 0, 1, event.key(), event.type, _event=event)]
    dead = Dead(Record(f"sim.{topic}", 0, 0, None, b"", (), 0), reason, "why it is there")
    letter = dead_letter(dead, service="placement", namespace="sim")
    history.log["dead-letters", 0] = [Logged("dead-letters", 0, 0, 1, "", "", _sent=letter)]
    history.injected += [Injected(number, 1, Fault.POISONED, job) for number, job in enumerate(poisoned)]
    story = with_gang().decide(*(enqueued(job) for job in enqueues), inputs={f"{topic}-0": 1})
    found = evidence_of(history).cells[0]
    return story.broken(answers=found.answers, operations=found.operations, dead=found.dead)


@pytest.mark.parametrize("poisoned", [(), ("one",)])
def test_an_admitted_job_that_is_set_aside_as_unwritable_is_lost(poisoned: tuple[str, ...]) -> None:
    assert broken(admitted("one"), DeadLetterReason.UNWRITABLE, *poisoned) == ["I2"]


@pytest.mark.parametrize("reason", [DeadLetterReason.UNWRITABLE, DeadLetterReason.HANDLER_FAILED])
def test_an_operation_that_is_set_aside_is_lost(reason: DeadLetterReason) -> None:
    assert broken(HoldJob(cell=CELL, job="gang", by="ada"), reason, "gang") == ["I2"]


def test_a_job_may_be_set_aside_only_where_the_world_lets_decisions_fail_on_it() -> None:
    job: JobAdmitted = admitted("one")
    assert broken(job, DeadLetterReason.HANDLER_FAILED, "one") == []
    assert broken(job, DeadLetterReason.HANDLER_FAILED, "other") == ["I2"]


def test_a_job_that_is_set_aside_takes_no_other_of_its_record_with_it() -> None:
    record = of_one_record("one", "two")
    assert broken(record, DeadLetterReason.HANDLER_FAILED, "one") == ["I2"]
    assert broken(record, DeadLetterReason.HANDLER_FAILED, "one", enqueues=("two",)) == []
