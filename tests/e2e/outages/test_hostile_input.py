"""Whatever stands in a topic: each record gets its answer or its dead letter, and the next one is handled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from fallow.shared.events import nodes as n
from fallow.shared.events.codec.encoding import ce_headers, encode
from fallow.shared.events.decisions import CHAIN_HEADER, Decision
from fallow.shared.events.fields.values import NodeSpec, NodeStatus, ObservedRun, RunStatus
from fallow.shared.events.jobs import JobAdmitted, JobRejected
from fallow.shared.events.operations import ReloadCell
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.log.port import Outgoing
from fallow.shared.log.reading import header
from fallow.shared.runtime.clocks import wall_ms
from tests.cli.usage.test_commands import call
from tests.contract.eventually import eventually
from tests.e2e.worlds.hostile_submissions import HARMLESS, REJECTED, SET_ASIDE, Hostile
from tests.e2e.worlds.outcomes import answers, letters, reason, records_of
from tests.e2e.worlds.running_cell import CELL, CELL_FILE, RunningCell, a_job, in_full, running_cell
from tests.kafka.worlds.unreadable import unreadable_batch

pytestmark = pytest.mark.real_kafka

WITH_OWN_TOPIC = CELL_FILE.replace("{name: speech}", "{name: speech, own_topic: true}")
READERS = ("queueing", "placement", "executor", "projector", "metrics")
"""All that fold the log. Loaning does not look into it in a cell in which no job may yield."""


@pytest.fixture
async def cell(kafka: str, redis_url: str, namespace: str, tmp_path: Path) -> AsyncIterator[RunningCell]:
    async with running_cell(kafka, redis_url, namespace, tmp_path, cell_file=WITH_OWN_TOPIC) as cell:
        yield cell


@pytest.fixture
async def outsider(kafka: str) -> AsyncIterator[AIOKafkaProducer]:
    """A foreign client that sends what it likes."""
    async with AIOKafkaProducer(bootstrap_servers=kafka, max_request_size=2_000_000) as producer:
        yield producer


async def send(cell: RunningCell, outsider: AIOKafkaProducer, hostile: Hostile) -> None:
    plain = cell.layout.topic("submissions")
    topic = plain if hostile.tenant_topic is None else f"{plain}.{hostile.tenant_topic}"
    headers = [("ce_type", hostile.type_.encode()), ("case", hostile.case.encode()), *hostile.more]
    await outsider.send(topic, hostile.value, key=hostile.case.encode(), headers=headers)


async def test_every_hostile_submission_has_its_outcome_and_good_jobs_go_on(
    cell: RunningCell, outsider: AIOKafkaProducer
) -> None:
    demand = cell.layout.topic("demand").encode()
    reply = Hostile("reply-to", "admitted", encode(SubmitJob(job=a_job("reply-to"))), SubmitJob.type)
    sent = [*REJECTED, *SET_ASIDE, *HARMLESS, reply]
    for number, hostile in enumerate(sent):
        await cell.submit(a_job(f"good-{number}", ms=50))
        await send(cell, outsider, hostile if hostile is not reply else with_header(reply, "reply_to", demand))
    await unreadable_batch(outsider, cell.layout.topic("submissions"), 0, [b"a", b"b", b"c"])
    await outsider.flush()
    await cell.submit(a_job("twice"), a_job("twice"), a_job("twice", gpus=2), a_job("last", ms=50))
    good = [f"good-{number}" for number in range(len(sent))]
    await cell.until_over(*good, *(h.job for h in (*HARMLESS, reply)), "twice", "last", wait_s=40)
    await cell.until(lambda c: "JobRefused" in c.story("twice"), what="the refusal of another job of that name")

    rejected = {e.job: e.code.value for e in await answers(cell) if isinstance(e, JobRejected)}
    admitted = {e.spec.id for e in await answers(cell) if isinstance(e, JobAdmitted)}
    aside = {header(letter, "orig_case"): reason(letter) for letter in await letters(cell)}
    unreadable = [letter for letter in await letters(cell) if header(letter, "orig_unreadable")]
    assert rejected == {hostile.job: hostile.outcome for hostile in REJECTED}
    assert {case: why for case, why in aside.items() if case} == {h.case: h.outcome for h in SET_ASIDE}
    assert admitted == {*map(in_full, (*good, "twice", "last")), *(h.job for h in (*HARMLESS, reply))}
    assert {reason(letter) for letter in unreadable} == {"unreadable"}
    assert len(unreadable) >= 1
    assert await records_of(cell, "demand") == []
    assert cell.problems() == []


def with_header(hostile: Hostile, name: str, value: bytes) -> Hostile:
    return Hostile(hostile.case, hostile.outcome, hostile.value, hostile.type_, ((name, value),))


def node_words() -> list[n.NodeEvent]:
    """Events that no agent may send about node-000, which is in its first boot, and about unknown nodes."""
    here: dict[str, Any] = {"cell": CELL, "node": "node-000", "boot": "boot-1"}
    gone: dict[str, Any] = {"cell": CELL, "node": "node-000", "boot": "x"}
    absent: dict[str, Any] = {"cell": CELL, "node": "absent", "boot": "boot-1", "seq": 1}
    run: dict[str, Any] = {"job": "vision/done", "attempt": 1}
    last = n.seq_max(wall_ms()) - 60_000_000  # above whatever an executor says, and taken for a minute to come
    return [
        n.NodeReport(**absent, observed=(ObservedRun(job="vision/slow", attempt=1, status=RunStatus.FAILED),)),
        n.NodeLost(**absent),
        n.RunFailed(**absent, job="vision/slow", attempt=1),
        n.NodeLost(**here, seq=0),
        n.NodeReport(**here, seq=1, failed_devices=(0, 1, 2, 3, 4, 5, 6, 7)),
        n.RunFailed(**here, seq=2, job="vision/slow", attempt=1),
        n.NodeLost(**gone, seq=last),
        n.NodeReport(**gone, seq=last, failed_devices=(0,)),
        n.NodeJoined(cell=CELL, node="quiet", boot="boot-1", seq=1, spec=NodeSpec(id="quiet", pool="training", gpus=8)),
        n.NodeJoined(cell=CELL, node="lost", boot="b", seq=1, spec=NodeSpec(id="lost", pool="moon", gpus=8)),
        n.NodeJoined(cell=CELL, node="wide", boot="b", seq=1, spec=NodeSpec(id="wide", pool="training", gpus=4_096)),
        n.NodeJoined(cell=CELL, node="wolf", boot="b", seq=1, spec=NodeSpec(id="sheep", pool="training", gpus=8)),
        n.NodeReport(**here, seq=2**53 - 1, failed_devices=(0,)),
        n.DeviceFailed(cell=CELL, node="quiet", boot="boot-1", seq=last, device=8),
        n.RunFinished(cell=CELL, node="quiet", boot="boot-1", seq=last + 1, **run),
        n.RunStarted(cell=CELL, node="quiet", boot="boot-1", seq=last + 2, job="vision/slow", attempt=7),
    ]


async def test_no_word_of_a_node_can_harm_the_cell(cell: RunningCell) -> None:
    await cell.submit(a_job("done", ms=50))
    await cell.until_over("done")
    await cell.submit(
        *(a_job(f"slow-{number}", gpus=8, ms=None) for number in range(3)), a_job("slow", gpus=8, ms=None)
    )
    await cell.until(lambda c: sum("JobRunning" in c.story(job) for job in c.state.jobs) == 4, what="all to run")
    nodes, jobs = cell.layout.tp("nodes", CELL), dict(cell.state.jobs)
    broken = [None, b"", b"{", b"\xff", b"[" * 400_000, b'{"cell":"main"}', b"null"]
    await cell.log.publish(
        [
            Outgoing(nodes[0], value, b"node-000", (("ce_type", n.NodeReport.type.encode()),), nodes[1])
            for value in broken
        ]
    )
    await cell.publish(*node_words())
    other = n.NodeReport(cell="elsewhere", node="node-000", boot="boot-1", seq=2**53 - 1)
    headers = ce_headers(other, id="other", source="test", wall_ms=0)
    await cell.log.publish([Outgoing(nodes[0], encode(other), b"node-000", headers, nodes[1])])
    good = NodeSpec(id="good", pool="training", gpus=8)
    await cell.publish(n.NodeJoined(cell=CELL, node="good", boot="boot-1", seq=1, spec=good))
    await cell.until(lambda c: "good" in c.state.nodes, what="the next record to be handled")
    assert Counter(reason(letter) for letter in await letters(cell)) == {
        "unreadable": 5,
        "invalid": 3,
        "wrong_cell": 1,
        "unknown_node": 3,
        "unknown_pool": 1,
        "larger_than_pool": 1,
        "unknown_device": 1,
        "sequence_too_far": 1,
    }
    assert await past_words(cell) == {"old_sequence": 3, "old_boot": 2, "run_over": 2}
    assert sorted(cell.state.nodes) == ["good", *(f"node-{number:03}" for number in range(4)), "quiet"]
    assert {(node.status, node.failed) for node in cell.state.nodes.values()} == {(NodeStatus.READY, 0)}
    assert {job: cell.state.jobs[job].status for job in jobs} == {job: jobs[job].status for job in jobs}
    assert cell.problems() == []


async def past_words(cell: RunningCell) -> dict[str, float]:
    """What placement counts of words that came too late, by why."""
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"http://127.0.0.1:{cell.services.port('placement')}/metrics")).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return {
        sample.labels["why"]: sample.value
        for sample in families["fallow_past_node_events"].samples
        if sample.name.endswith("_total")
    }


async def test_a_stale_writers_record_is_skipped_and_a_broken_chain_fences_the_cell(cell: RunningCell) -> None:
    await cell.submit(a_job("before"))
    await cell.until_over("before")
    await publish_decision(cell, version=cell.state.version, chain="0" * 32)
    await cell.submit(a_job("between"))
    await cell.until_over("between")
    assert cell.state.skipped >= 1
    assert cell.problems() == []
    await publish_decision(cell, version=cell.state.version + 1, chain="0" * 32)
    await cell.submit(a_job("never"))
    for name in READERS:
        await eventually(lambda name=name: is_fenced(cell, name), within_s=30)  # type: ignore[misc]  # mypy and defaults
    logs = {name: (cell.folder / "run" / f"{name}.log").read_text() for name in READERS}
    assert {name for name, log in logs.items() if "fenced: operator action needed" in log} == set(READERS)
    assert {name for name, log in logs.items() if "does not continue the chain" in log} == set(READERS)
    assert not any("Traceback" in log for log in logs.values())


async def is_fenced(cell: RunningCell, name: str) -> bool:
    """Whether the service lives on, not ready, and says where the log is damaged."""
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{cell.services.port(name)}/readyz/{CELL}")
    told = answer.json()
    return answer.status_code == 503 and (told["fenced"], told["topic"]) == (True, cell.layout.topic("decisions"))


async def publish_decision(cell: RunningCell, *, version: int, chain: str) -> None:
    decision = Decision(cell=CELL, version=version, epoch=99, at_ms=cell.state.at_ms, inputs={}, effects=())
    more = ((CHAIN_HEADER, chain.encode()),)
    await cell.log.publish([cell.layout.outgoing(decision, id="rogue", source="rogue", wall_ms=0, more=more)])


async def test_a_cell_file_with_an_error_changes_nothing_and_a_good_one_counts(
    cell: RunningCell, kafka: str, redis_url: str, namespace: str
) -> None:
    path = cell.folder / "cell.yaml"
    where = {"FALLOW_KAFKA": kafka, "FALLOW_REDIS": redis_url, "FALLOW_NAMESPACE": namespace}
    fallow = partial(call, FALLOW_CELL_FILE=str(path), **where)
    path.write_text(WITH_OWN_TOPIC.replace("gpus: 1024", "gpus: many"))
    await cell.publish(ReloadCell(cell=CELL))
    await until_said(cell, ("admission", "placement"), "the old one stays in force")
    refused = fallow("cell", "reload")
    assert (refused.returncode, refused.stderr.splitlines()[0].endswith("must be a whole number")) == (2, True)
    path.write_text(WITH_OWN_TOPIC.replace("name: main", "name: east"))
    assert "a reload keeps the cells and their ordinals" in fallow("cell", "reload").stderr
    await cell.publish(ReloadCell(cell=CELL))
    await until_said(cell, ("admission", "placement"), "a reload keeps the cells and their ordinals")
    await cell.submit(a_job("as-before"))
    await cell.until_over("as-before")
    path.write_text(WITH_OWN_TOPIC + "  - {name: late}\n")
    told = fallow("cell", "reload", "--json")
    assert (told.returncode, told.stderr) == (0, "")
    answer = json.loads(told.stdout)["cells"][0]
    await cell.until(lambda c: c.state.version >= answer["version"], what="the decision that was told")
    in_force = cell.state.cell_file
    assert in_force is not None
    assert (answer["ok"], answer["digest"]) == (True, in_force.digest)
    assert answer["answer"].endswith("; changed: tenants)")
    await until_said(cell, ("admission", "placement"), "the cell file was read again")
    again = fallow("cell", "reload", "--cell", CELL)
    assert (again.returncode, f"goes by {path} already" in again.stdout) == (0, True)
    await cell.submit(a_job("of-the-new-tenant", tenant="late"))
    await cell.until_over("late/of-the-new-tenant")
    assert "cell.yaml: line 5: cells[0].pools[0].gpus" in (cell.folder / "run" / "admission.log").read_text()
    assert cell.problems() == []


async def until_said(cell: RunningCell, names: tuple[str, ...], words: str) -> None:
    """Wait until these services have logged the words."""
    files = [cell.folder / "run" / f"{name}.log" for name in names]
    await cell.until(lambda _: all(words in file.read_text() for file in files), what=f"{names} to say {words!r}")
