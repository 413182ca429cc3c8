"""The cell that is measured: a real Kafka and a real Redis, every service a process, on topics of its own."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from rich.console import Console

from fallow.bench.load.job_mix import GPUS_PER_NODE, TENANT
from fallow.bench.load.machine import filesystem_of
from fallow.cli.errors.failures import refuse
from fallow.local.local_cell import LocalCell, Servers, running, stage_for
from fallow.local.secured import Security, choose_secured
from fallow.local.service_set import Clock
from fallow.replay.run_session import folder_for
from fallow.replay.workload import CELL, QUEUE, Workload, pools_of, uniform_nodes
from fallow.services.placement.search.gang import POLICIES
from fallow.shared.cluster.model.config import CellFile, CellPart, Queue, Tenant, TenantQuota
from fallow.shared.events.operations import CellPolicy
from fallow.shared.log.admin.topic_admin import flushes_each_record
from fallow.shared.log.layout import Layout
from fallow.shared.runtime.addresses import WITH_TLS
from fallow.shared.runtime.process import loop_factory
from fallow.shared.runtime.stack.choose import Choice, choose_kafka, choose_redis

IN_MEMORY = ("tmpfs", "ramfs")
"""File systems on which a flush writes nothing."""

Answer = TypeVar("Answer")
Baseline = TypeVar("Baseline")
POOL = "bench"
SPARE = "spare"
"""A pool for those alone who ask for it: whatever waits, its nodes are free."""


LAB = "lab"


def cell_of(nodes: int, policy: CellPolicy | None = None, *, has_quotas: bool = False, spare: int = 0) -> Workload:
    """So many nodes of 8 in one pool, with one queue, and no job yet. With quotas the tenant has a half guaranteed and
    may borrow the other half of its lab, which has all there is. There are `spare` more nodes, in a pool of their own.
    """
    specs, gpus = uniform_nodes(nodes, GPUS_PER_NODE, pool=POOL), nodes * GPUS_PER_NODE
    specs += uniform_nodes(spare, GPUS_PER_NODE, pool=SPARE, first=nodes + 1)
    tenants: tuple[Tenant, ...] = (Tenant(name=TENANT),)
    if has_quotas:
        own = Tenant(name=TENANT, parent=LAB, quotas=(TenantQuota(guaranteed=gpus // 2, limit=gpus),))
        tenants = (Tenant(name=LAB, quotas=(TenantQuota(guaranteed=gpus, limit=gpus),)), own)
    queues, policy = (Queue(name=QUEUE),), policy or CellPolicy()
    cell = CellPart(name=CELL, ordinal=0, pools=pools_of(specs), queues=queues, policy=policy)
    return Workload(commands=(), nodes=tuple(specs), cell_file=CellFile(cells=(cell,), tenants=tenants))


def policy_with(placement: str | None) -> CellPolicy:
    """A cell's policy as shipped, but for the placement policy where one is named; ends the command if there is none of
    this name.
    """
    if placement is None:
        return CellPolicy()
    if placement not in POLICIES:
        refuse("--placement", placement, f"is none of {', '.join(POLICIES)}")
    return CellPolicy(placement=placement)


@dataclass(frozen=True, slots=True)
class Staged(Generic[Answer, Baseline]):
    """What came of the work and of its baseline. `durable`: whether Kafka flushed each record of the log before it
    acknowledged it. `security`: by what clients came in.
    """

    answer: Answer
    baseline: Baseline
    durable: bool
    security: Mapping[str, object]


@contextmanager
def servers_for(console: Console, *, durable: bool, secured: bool | None = None) -> Iterator[tuple[Servers, Path]]:
    """A Kafka that is real and a Redis, started for this run or given by FALLOW_KAFKA and FALLOW_REDIS. One that is
    given flushes as it will, whatever `durable` says. Secured ones are started here in any case. Raises StackError.
    """
    with folder_for("fallow-bench-", keep=False, console=console) as path:
        kafka, redis, security = chosen(path, durable=durable, secured=secured)
        console.print(f"Kafka: {kafka.explanation()}\nRedis: {redis.explanation()}", highlight=False, soft_wrap=True)
        with running(kafka, redis, security) as servers:
            yield servers, path


def chosen(path: Path, *, durable: bool, secured: bool | None) -> tuple[Choice, Choice, Security | None]:
    """The Kafka and the Redis, not started yet. `secured`: whether they are of the secured cell or of the plain one
    beside it; None where no secured one is measured. Raises StackError.
    """
    if secured:
        return choose_secured(path, durable=durable)
    # Beside a secured one with Java's best compiler, too: it takes 4 s of a processor in its first minute, but nothing
    # else uses the processor's instructions for AES, and TLS without them costs 80 times as much. Else as `fallow up`.
    kafka = choose_kafka(path / "kafka", durable=durable, embedded=False, quick_start=secured is None)
    return kafka, choose_redis(path / "redis"), None


def security_of(servers: Servers) -> Mapping[str, object]:
    """By what clients come in, for `--json`."""
    if servers.security is not None:
        return servers.security.told()
    return {
        "kafka": servers.kafka_access.protocol.value,
        "mechanism": None,
        "redis_users": "@" in servers.redis.server.address,
        "redis_tls": servers.redis.server.address.startswith(WITH_TLS),
    }


def on_stage(
    console: Console,
    workload: Workload,
    work: Callable[[LocalCell], Awaitable[Answer]],
    baseline: Callable[[Answer, Servers, Path], Awaitable[Baseline]],
    *,
    durable: bool,
    secured: bool | None = None,
) -> Staged[Answer, Baseline]:
    """Do the work on this cell, running, then, on the same servers without any service, the baseline. Kafka flushes
    each record if it is to be `durable`.

    Raises StackError as soon as a service ends by itself.
    """
    with servers_for(console, durable=durable, secured=secured) as (servers, path):

        async def staged() -> Staged[Answer, Baseline]:
            say = partial(console.print, highlight=False, soft_wrap=True)
            async with stage_for(workload, servers, path, fresh_namespace(), Clock(), say=say) as stage:
                answer = await stage.unless_one_ends(work(stage))
                flushed = await is_durable(servers, stage.layout)
            return Staged(answer, await baseline(answer, servers, path), flushed, security_of(servers))

        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(staged())


async def is_durable(servers: Servers, layout: Layout) -> bool:
    """Whether the broker, asked, flushes each record of the decision log, and not into memory as far as its files are
    ours to see. Raises LogUnavailable.
    """
    data_dir = getattr(servers.kafka.server, "data_dir", None)
    if data_dir is not None and filesystem_of(data_dir) in IN_MEMORY:
        return False
    return await flushes_each_record(servers.kafka_access, layout.topic("decisions"))


def fresh_namespace() -> str:
    """Topics and keys that no other run uses."""
    return f"bench-{secrets.token_hex(4)}"
