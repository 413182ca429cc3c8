"""A cell on a Kafka with SCRAM, TLS and ACLs: each service as its own principal, with the rights of access.yaml."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import RejectCode
from fallow.shared.events.submissions import CancelJob
from fallow.shared.log.admin.access_admin import check_access, put_access_in_force
from fallow.shared.log.admin.access_rules import Operation, Pattern, Resource, Rule
from fallow.shared.log.admin.topic_admin import create_topics
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.opening import declared_access, declared_topics
from fallow.shared.log.port import LogRefused, LogUnavailable, Outgoing, Refusal
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.runtime.files.cell_file import load_cell_file
from fallow.shared.runtime.kafka_access import KafkaAccess
from fallow.shared.runtime.stack.secured.kafka import SUPER, SecuredKafka
from fallow.shared.view.reader import ViewReader
from fallow.shared.view.redis_view import RedisFunctions
from tests.cli.usage.test_commands import call
from tests.contract.eventually import eventually
from tests.contract.worlds.guarded_redis import GuardedRedis, guarded_redis
from tests.e2e.worlds.outcomes import answers
from tests.e2e.worlds.running_cell import CELL, CELL_FILE, RunningCell, a_job, running_cell
from tests.e2e.worlds.secured_kafka import obstacle, password_of, secured_kafka

SERVICES = ("admission", "queueing", "loaning", "placement", "executor", "projector", "metrics")
TENANT, OPERATOR = "tenant-vision", "operator"
OWN_TOPIC = CELL_FILE.replace("{name: vision}", "{name: vision, own_topic: true}")

pytestmark = pytest.mark.real_kafka


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    if reason := obstacle():
        pytest.skip(reason)
    kafka = secured_kafka(tmp_path_factory.mktemp("secured"), [*SERVICES, TENANT, OPERATOR])
    kafka.start()
    yield kafka
    kafka.stop()


async def declared_in_force(secured: SecuredKafka, folder: Path, namespace: str) -> frozenset[Rule]:
    (folder / "cell.yaml").write_text(OWN_TOPIC)
    file = load_cell_file(folder / "cell.yaml")
    await create_topics(secured.access(SUPER), declared_topics(file, namespace))
    rules = declared_access(file, namespace)
    left = await put_access_in_force(secured.access(SUPER), rules)
    assert left is not None
    assert left.is_as_declared
    return rules


@pytest.fixture
def guarded(tmp_path_factory: pytest.TempPathFactory, namespace: str) -> Iterator[GuardedRedis]:
    with guarded_redis(tmp_path_factory.mktemp("redis"), namespace) as redis:
        yield redis


async def test_a_job_runs_where_each_service_has_its_own_rights_alone(
    secured: SecuredKafka, guarded: GuardedRedis, namespace: str, tmp_path: Path
) -> None:
    await declared_in_force(secured, tmp_path, namespace)
    assert guarded.command("loader", "view", "load").returncode == 0

    def own(service: str) -> dict[str, str]:
        """No service but the projector has a user at Redis."""
        redis = guarded.url("projector" if service == "projector" else None)
        return secured.settings(service) | {"FALLOW_REDIS": redis}

    async with running_cell(
        secured.address,
        guarded.url(),
        namespace,
        tmp_path,
        cell_file=OWN_TOPIC,
        admin=secured.access(SUPER),
        own=own,
    ) as cell:
        await cell.submit(a_job("hello", workers=2, gpus=8))
        await cell.until_over("hello")
        # Another writer, another admission and another executor take over with the same rights.
        for name in ("placement", "admission", "executor", "projector", "queueing", "metrics"):
            await cell.services.restart(name)
        await cell.services.wait_ready()
        await cell.submit(a_job("again"))
        await cell.until_over("again")
        own_file = {"FALLOW_NAMESPACE": namespace, "FALLOW_REDIS": guarded.url("reader")}
        who = {
            user: secured.settings(user) | own_file | {"FALLOW_KAFKA_PASSWORD": password_of(user)}
            for user in (TENANT, OPERATOR)
        }
        await sent_by_the_own_topic(
            cell, who[TENANT], who[OPERATOR] | {"FALLOW_CELL_FILE": str(tmp_path / "cell.yaml")}
        )
        assert cell.problems() == []
        await eventually(lambda: is_shown(guarded, "vision/again"), within_s=15)
    said = "".join(path.read_text() for path in (tmp_path / "run").glob("*.log"))
    assert [word for word in ("pass-of-", "AuthorizationFailed", Refusal.NOT_ALLOWED, "NOPERM") if word in said] == []


async def sent_by_the_own_topic(cell: RunningCell, as_tenant: dict[str, str], as_operator: dict[str, str]) -> None:
    """The command line of the tenant's own user, who has no cell file of this cell and sees no topic but its own, and
    of an operator; and what becomes of a command in the tenant's name by the common topic.
    """
    mine, theirs = (encode(a_job(name, ms=None)).decode() for name in ("mine", "theirs"))
    told = await asyncio.to_thread(call, "submit", "-", stdin=mine, **as_tenant)
    assert told.returncode == 0, told.stderr
    await cell.until(lambda c: "JobRunning" in c.story("mine"), what="the tenant's job to run")
    told = await asyncio.to_thread(call, "submit", "-", stdin=theirs, **as_operator)
    assert told.returncode == 0, told.stderr
    await cell.until(lambda c: "JobRunning" in c.story("theirs"), what="the operator's job to run")
    strange = cell.layout.outgoing(CancelJob(job="mine", tenant="vision"), id="s", source="stranger", wall_ms=wall_ms())
    await cell.log.publish([Outgoing(cell.layout.topic("submissions"), strange.value, strange.key, strange.headers)])
    told = await asyncio.to_thread(call, "cancel", "vision/theirs", **as_operator)
    assert told.returncode == 0, told.stderr
    await cell.until_over("theirs")
    assert cell.state.jobs["vision/mine"].status is JobStatus.RUNNING
    (no,) = [event for event in await answers(cell) if isinstance(event, JobRejected)]
    assert (no.job, no.tenant, no.code) == ("mine", None, RejectCode.TENANT_NOT_OF_TOPIC)
    told = await asyncio.to_thread(call, "cancel", "vision/mine", "--cell", "main", **as_tenant)
    assert (told.returncode, "it is sent" in " ".join(told.stderr.split())) == (3, True)
    await cell.until_over("mine")
    told = await asyncio.to_thread(call, "log", "tail", **as_tenant)
    assert "user tenant-vision sees no topics of namespace" in " ".join(told.stderr.split())


async def is_shown(guarded: GuardedRedis, job: str) -> bool:
    """Whether the view has this job, as the user who only reads sees it."""
    functions = RedisFunctions(guarded.url("reader"))
    try:
        return (await ViewReader(functions, guarded.namespace).job(CELL, job)).value is not None
    finally:
        await functions.stop()


async def may_write(access: KafkaAccess, topics: list[str]) -> set[str]:
    """To which of these topics a record of this principal is taken."""
    log = KafkaLog(access, "trial")
    await log.start()
    try:
        return {topic for topic in topics if await is_taken(log, topic)}
    finally:
        await log.stop()


async def is_taken(log: KafkaLog, topic: str) -> bool:
    """Whether this record is written; raises LogUnavailable where it is not, for another reason than rights."""
    try:
        await log.publish([Outgoing(topic, b"{}", key=b"k", partition=0)])
    except LogRefused as error:
        if error.code is not Refusal.NOT_ALLOWED:
            raise
        return False
    return True


async def test_only_who_is_declared_to_write_a_topic_can_write_it(
    secured: SecuredKafka, namespace: str, tmp_path: Path
) -> None:
    rules = await declared_in_force(secured, tmp_path, namespace)
    topics = sorted({r.name for r in rules if r.resource is Resource.TOPIC and r.pattern is Pattern.LITERAL})
    done = {
        (who, topic) for who in (*SERVICES, TENANT, OPERATOR) for topic in await may_write(secured.access(who), topics)
    }
    may = {(rule.principal, rule.name) for rule in rules if rule.operation == Operation.WRITE}
    assert done == may
    assert (TENANT, f"{namespace}.submissions.vision") in may
    assert len(may) < len(topics) * len((*SERVICES, TENANT, OPERATOR)) / 4


async def test_rights_that_were_added_by_hand_are_told_and_those_of_our_principals_taken_back(
    secured: SecuredKafka, namespace: str, tmp_path: Path
) -> None:
    rules = await declared_in_force(secured, tmp_path, namespace)
    forged = Rule("metrics", Operation.WRITE, Resource.TOPIC, f"{namespace}.decisions")
    stranger = Rule("etl", Operation.READ, Resource.TOPIC, f"{namespace}.decisions")
    await put_access_in_force(secured.access(SUPER), rules | {forged, stranger})
    found = await check_access(secured.access(SUPER), rules)
    assert found is not None
    assert (found.left.missing, found.left.too_many, found.left.beside) == ((), (forged,), (stranger,))
    assert found.left.lines() == [
        f"not declared: metrics may write {namespace}.decisions",
        f"beside the file: etl may read {namespace}.decisions",
    ]
    left = await put_access_in_force(secured.access(SUPER), rules)
    assert left is not None
    assert left.removed == (forged,)
    assert left.left.lines() == [f"beside the file: etl may read {namespace}.decisions"]


@pytest.mark.parametrize("what", ["password", "user", "authority"])
async def test_a_wrong_proof_lets_nobody_in_and_names_no_password(secured: SecuredKafka, what: str) -> None:
    access = {
        "password": secured.access("metrics", "wrong-word"),
        "user": secured.access("absent", "wrong-word"),
        "authority": replace(secured.access("metrics", "wrong-word"), ca_file=None),
    }[what]
    log = KafkaLog(access, "stranger")
    with pytest.raises((LogUnavailable, LogRefused)) as refused:
        await log.start()
    await log.stop()
    assert "wrong-word" not in str(refused.value)
