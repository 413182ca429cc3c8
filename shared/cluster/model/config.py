"""The cell file: tenants, pools, cells, queues and limits, as one validated value.

A file that stands in the log was accepted by the release that put it there. So a rule about how much may be asked for
does not judge it (`is_from_log`): a release with a new bound still goes by the file in force. What each file must keep
is its form: fields, their types, and names that are known and stand once.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator, model_validator

from fallow.shared.cluster.model.lease import wrong_lease
from fallow.shared.cluster.model.weak_keys import wrong_key
from fallow.shared.cluster.quota.rules import QUOTAS_MAX, fault_among, fault_in_pools, guaranteed_by_type
from fallow.shared.events.base import LARGEST_INTEGER, LATEST_MS, Label, Millis, Name
from fallow.shared.events.codec.encoding import written
from fallow.shared.events.effects import CELL_FILE_CHARACTERS_MAX
from fallow.shared.events.fields.value import is_from_log, told_of
from fallow.shared.events.fields.values import DEVICES_MAX, GPU, POOLS_MAX, WORKERS_MAX, NodeRole
from fallow.shared.events.operations import CellPolicy, Quota, ReclaimFrom
from fallow.shared.events.queue import QueueDiscipline, QueueOrder

AGING_MAX_MS = 10 * 365 * 86_400_000

KEY_KIND = "ed25519:"
PUBLIC_KEY = f"^{KEY_KIND}[A-Za-z0-9+/]{{42}}[AEIMQUYcgkosw048]=$"
"""32 bytes as base64."""

KEYS_MAX = 16
"""A forged record is tried with each of them."""

GPUS_MAX = LARGEST_INTEGER // GPU
"""So many GPUs a pool or a share of it has at most: the log counts them in thousandths."""

Gpus = Annotated[int, Field(strict=True, ge=0, le=GPUS_MAX)]


PLACEMENTS = ("best-fit", "binpack", "first-fit", "spread", "e-binpack", "frag-aware", "lifetime", "e-spread")
"""The placement policies that a cell file may name. Placement gathers its policies by itself; a test tells the line
that is to stand here.
"""


class Part(BaseModel):
    """A part of the cell file. A key that it does not know is an error, not a comment."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


NODE_PATTERNS_MAX = 100

NODE_PATTERN = r"^[a-z0-9*]([a-z0-9._*-]{0,126}[a-z0-9*])?$"

NodePattern = Annotated[str, StringConstraints(pattern=NODE_PATTERN)]
"""A node's id, in which `*` stands for any characters."""

FORMS = {
    NODE_PATTERN: (
        "must be 1 to 128 of a to z, 0 to 9, '.', '_', '-' and '*', beginning and ending with a letter, a digit or '*'"
    ),
    PUBLIC_KEY: f"must be {KEY_KIND} and 32 bytes in base64, as `fallow cell key` prints it",
}
"""What these patterns ask for, in words."""


class Pool(Part):
    """Nodes of one GPU type."""

    name: Name
    """The name of the pool, which stands once in the file. Nodes name it when they join."""
    gpu_type: Label = "gpu"
    """The type of GPU that all nodes of the pool have, as jobs and quotas name it."""
    role: NodeRole = NodeRole.TRAINING
    """The kind of jobs the nodes are for. An inference pool may be lent to training."""
    driver: Literal["virtual", "process"] = "virtual"
    """What its nodes can run: `process` runs real programs, `virtual` runs that only take time."""
    gpus: Annotated[int, Field(strict=True, ge=1, le=GPUS_MAX)]
    """How many GPUs the pool is to have in all. A larger job is rejected at once, and no more may be guaranteed. It
    keeps no node from joining: raise it before the pool grows.
    """
    gpus_per_node: Annotated[int, Field(strict=True, ge=1, le=DEVICES_MAX)] = 8
    """The largest number of GPUs that a node of the pool may have. A larger worker is rejected, a larger node does
    not join.
    """
    nodes: Annotated[tuple[NodePattern, ...], Field(min_length=1, max_length=NODE_PATTERNS_MAX)] = ("*",)
    """The ids of nodes that may join, where `*` stands for any characters. It is looked at when a node joins."""

    def admits(self, node: str) -> bool:
        """Whether a node of this id may join."""
        return any(fnmatchcase(node, pattern) for pattern in self.nodes)


VersionNumber = Annotated[int, Field(strict=True, ge=1, le=LARGEST_INTEGER)]


class PublicKey(Part):
    """A key by which readers know a writer of the cell. With `until_version` it is retired: it proves decisions up to
    that one, and nobody writes with it.
    """

    public: Annotated[str, Field(pattern=PUBLIC_KEY)]
    """The public key, as `fallow cell key` prints it."""
    until_version: VersionNumber | None = None
    """The key is retired: it proves decisions up to this version, and no service writes with it. Without it the key
    is in use.
    """

    @field_validator("public")
    @classmethod
    def _proves_its_owner(cls, public: str, info: ValidationInfo) -> str:
        """A file in the log keeps such a key, which proves nothing there: readers go by their own file."""
        rule = None if is_from_log(info) else wrong_key(_key_bytes(public))
        if rule is not None:
            raise ValueError(rule)
        return public

    @property
    def as_bytes(self) -> bytes:
        """The 32 bytes of the key."""
        return _key_bytes(self.public)


def _key_bytes(public: str) -> bytes:
    return b64decode(public.removeprefix(KEY_KIND))


class Signing(Part):
    """Whose decisions a cell's readers believe: from `from_version` on those alone that one of the keys proves."""

    from_version: VersionNumber
    """The first version of the decision log that has to be signed: 1 in a new cell."""
    keys: Annotated[tuple[PublicKey, ...], Field(min_length=1, max_length=KEYS_MAX)]
    """The keys that prove decisions. At least one of them is not retired."""

    @model_validator(mode="after")
    def _one_key_writes(self) -> Signing:
        _once("key", [key.public for key in self.keys])
        if all(key.until_version is not None for key in self.keys):
            raise ValueError("keys: each has an until_version, so that nobody can write")
        return self


class PreemptRule(StrEnum):
    """To which waiting jobs of a queue running ones yield by priority."""

    NEVER = "never"
    LOWER = "lower"
    LOWER_OR_NEWER_EQUAL = "lower_or_newer_equal"


class Queue(Part):
    """A line in which jobs wait, and how it lets jobs past one that does not fit."""

    name: Name
    """The name of the queue, which stands once in its cell."""
    discipline: QueueDiscipline = QueueDiscipline.BEST_EFFORT_FIFO
    """How the queue lets jobs past a job that does not fit. `strict-fifo`: a job that could use what the head needs
    waits behind it. `best-effort-fifo`: every job that fits may start. `backfill`: the planned start of the head is
    kept.
    """
    order: QueueOrder = QueueOrder.FIFO
    """Which job is next: `fifo` takes the oldest, `fair-share` a job of the tenant with the smallest share."""
    aging_ms: Annotated[int, Field(strict=True, ge=0, le=AGING_MAX_MS)] = 3_600_000
    """How much waiting one step of priority is worth. 0: priority is everything."""
    aging_max_ms: Annotated[int, Field(strict=True, ge=0, le=AGING_MAX_MS)] = 7 * 86_400_000
    """How much waiting all steps of priority are worth together. At least `aging_ms`."""
    preempt: PreemptRule = PreemptRule.LOWER
    """Which running jobs yield to a waiting job of the queue, under `preemption: all`. `never`: none. `lower`: those
    of lower priority. `lower_or_newer_equal`: those of equal priority as well that were submitted later.
    """
    default_run_ms: Annotated[int, Field(strict=True, ge=1, le=LARGEST_INTEGER)] | None = None
    """The `max_run_ms` of a job that tells none. Without it that is the `max_run_ms` of the queue."""
    max_run_ms: Annotated[int, Field(strict=True, ge=1, le=LARGEST_INTEGER)] | None = None
    """No job of the queue may have a larger `max_run_ms`, and none is without one. Without it there is no bound."""

    @model_validator(mode="after")
    def _a_step_counts_in_full(self) -> Queue:
        if self.aging_max_ms < self.aging_ms:
            raise ValueError(f"aging_max_ms {self.aging_max_ms} is below aging_ms {self.aging_ms}")
        if self.aging_max_ms and not self.aging_ms and "aging_max_ms" in self.model_fields_set:
            raise ValueError(f"aging_max_ms {self.aging_max_ms} without aging: aging_ms is 0")
        return self

    @model_validator(mode="after")
    def _the_default_is_within_the_bound(self) -> Queue:
        default_ms, max_ms = self.default_run_ms, self.max_run_ms
        if default_ms is not None and max_ms is not None and default_ms > max_ms:
            raise ValueError(f"default_run_ms {default_ms} is above max_run_ms {max_ms}")
        return self

    def over_max_run(self, max_run_ms: int | None) -> str:
        """Which rule keeps a job of the queue from having this limit; nothing where none does."""
        if max_run_ms is None or self.max_run_ms is None or max_run_ms <= self.max_run_ms:
            return ""
        return f"queue {self.name} lets a job run for {self.max_run_ms} ms at most"

    def limit_ms(self, max_run_ms: int | None) -> int | None:
        """How long a job of the queue that tells this limit, or none, may run; None where there is no bound."""
        if max_run_ms is not None:
            return max_run_ms
        return self.max_run_ms if self.default_run_ms is None else self.default_run_ms


class CellPart(Part):
    """One cell. Its ordinal is its partition in every topic, given once and never changed. Without `signing` its
    decisions are not signed.
    """

    name: Name
    """The name of the cell, which stands once in the file."""
    ordinal: Annotated[int, Field(strict=True, ge=0, le=9_999)]
    """The partition of the cell in every topic. Give each cell its own, counted from 0, and never change it."""
    pools: Annotated[tuple[Pool, ...], Field(min_length=1, max_length=POOLS_MAX)]
    """The nodes of the cell, by GPU type."""
    queues: Annotated[tuple[Queue, ...], Field(min_length=1)] = (Queue(name="default"),)
    """Where jobs wait. A job without a queue, of a tenant without one, waits in the first."""
    policy: CellPolicy = CellPolicy()
    """The numbers by which the cell decides. They enter the log when the cell begins; later changes count from the
    next `fallow cell reload` on.
    """
    signing: Signing | None = None
    """Which keys prove the decisions of the cell. Without it decisions are not signed."""

    @field_validator("policy", mode="before")
    @classmethod
    def _policy_is_known(cls, policy: Any) -> Any:
        """The policy is a value of the log too, where unknown fields are ignored: here they are misspelt."""
        for key in policy if isinstance(policy, dict) else ():
            if key not in CellPolicy.__struct_fields__:
                raise ValueError(f"{_shown(key)} is no setting of a policy")
        return policy

    @field_validator("policy")
    @classmethod
    def _lease_can_be_kept(cls, policy: CellPolicy, info: ValidationInfo) -> CellPolicy:
        if not is_from_log(info) and (wrong := wrong_lease(policy)) is not None:
            raise told_of(wrong.field, wrong.value, wrong.rule)
        return policy

    @model_validator(mode="after")
    def _names_once(self) -> CellPart:
        _once("pool", [pool.name for pool in self.pools])
        _once("queue", [queue.name for queue in self.queues])
        return self

    @property
    def default_queue(self) -> str:
        """Where jobs wait that name no queue, of tenants that name none: in the first, whatever it is called."""
        return self.queues[0].name

    @property
    def gpus_by_type(self) -> dict[str, int]:
        """How many GPUs of each type its pools will ever have."""
        found: dict[str, int] = {}
        for pool in self.pools:
            found[pool.gpu_type] = found.get(pool.gpu_type, 0) + pool.gpus
        return found


class TenantQuota(Part):
    """A tenant's share of one GPU type, in whole GPUs."""

    gpu_type: Label = "gpu"
    """The GPU type of the quota."""
    guaranteed: Gpus = 0
    """GPUs that are there for the tenant and the tenants below it whenever it wants them, as far as they were not
    lent. A parent that names none has what its children have together; one that names more shares it between them.
    """
    limit: Gpus | None = None
    """The largest number of GPUs that the tenant and all below it may use. Without it only the cell is the limit."""
    weight: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 1
    """In fair-share queues the use of the tenant is divided by its weight. Weight 0 comes behind all others of its
    level.
    """
    lends: bool = True
    """`false`: no other tenant may use what the tenant leaves idle of its guarantee."""
    borrows: bool = True
    """`false`: the tenant uses no more than its guarantee. Else it may also use GPUs that others leave idle, and
    GPUs that are guaranteed to no tenant.
    """
    borrow_limit: Gpus | None = None
    """The largest number of GPUs that the tenant uses beyond its guarantee. Without it as many as there are."""
    lend_limit: Gpus | None = None
    """The largest number of GPUs of its idle guarantee that others may use. Without it all of them."""
    reclaim: ReclaimFrom = ReclaimFrom.ANY
    """From whose jobs the tenant may take back what it lent, where the policy has `preemption` on. `any`: from all
    that borrow. `lower_priority`: only from jobs of lower priority than the one that waits. `never`: from none.
    """
    min_run_ms: Annotated[Millis, Field(strict=True)] | None = None
    """How long a job runs before it yields to a job of another tenant. Without it what holds for the parent."""
    reclaimable: bool = True
    """`false`: no job of the tenant, or of a tenant below it, yields to a job of another tenant beside it."""

    @model_validator(mode="after")
    def _limit_covers_the_guarantee(self) -> TenantQuota:
        if self.limit is not None and self.limit < self.guaranteed:
            raise ValueError(f"limit {self.limit} is below guaranteed {self.guaranteed}")
        return self

    def in_milli(self, tenant: str, parent: str | None) -> Quota:
        """The same in the language of the log."""
        return Quota(
            tenant=tenant,
            gpu_type=self.gpu_type,
            guaranteed_milli=self.guaranteed * GPU,
            limit_milli=None if self.limit is None else self.limit * GPU,
            weight=self.weight,
            lends=self.lends,
            borrows=self.borrows,
            parent=parent,
            borrow_limit_milli=None if self.borrow_limit is None else self.borrow_limit * GPU,
            lend_limit_milli=None if self.lend_limit is None else self.lend_limit * GPU,
            reclaim=self.reclaim,
            min_run_ms=self.min_run_ms,
            reclaimable=self.reclaimable,
        )


class SubmissionRate(Part):
    """How many jobs a tenant may submit or update: a second in the long run, and at once after a pause (None: a
    second's worth).

    It goes by the wall clock of the brokers.
    """

    per_s: Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
    """How many jobs or updates a second the tenant may send in the long run. An array counts as its elements, and
    cancels may be ten times as many.
    """
    burst: Annotated[int, Field(strict=True, ge=1, le=100_000_000)] | None = None
    """How many may come at once after a pause. Without it as many as `per_s`."""

    @property
    def at_once(self) -> int:
        """How many may come at once."""
        return self.per_s if self.burst is None else self.burst


class Tenant(Part):
    """Who may submit, and how much."""

    name: Name
    """The name of the tenant, which stands once in the file."""
    pools: tuple[Name, ...] = ()
    """The pools that the tenant may use. Without them all."""
    queue: Name | None = None
    """The queue in which its jobs wait that name none. Without it the first queue of the cell."""
    parent: Name | None = None
    """Another tenant of the file, whose guarantee and limit hold for both together. A line from the top to the
    lowest tenant has at most 16 levels. Tenants without a parent share the cell.
    """
    quotas: tuple[TenantQuota, ...] = ()
    """What the tenant has of each GPU type."""
    own_topic: bool = False
    """`true`: its submissions come in a topic of its own, which Kafka's ACLs can confine to it. What comes in its
    name by the common topic is rejected (`tenant_not_of_topic`).
    """
    submissions: SubmissionRate | None = None
    """How many submissions the tenant may send. Beyond that they are rejected (`too_many_submissions`). Without it
    as many as come.
    """
    max_priority: Annotated[int, Field(strict=True, ge=-1_000_000, le=1_000_000)] | None = None
    """No job of the tenant, or of a tenant below it, may have a higher priority. Without it there is no ceiling."""
    max_pending_jobs: Annotated[int, Field(strict=True, ge=1, le=LARGEST_INTEGER)] | None = None
    """At most so many of its jobs wait in each cell. Without it half of the policy's `max_pending_jobs`, or all of
    it in a file of one tenant.
    """
    live_bytes_max: Annotated[int, Field(strict=True, ge=1, le=LARGEST_INTEGER)] | None = None
    """At most so much may the texts of its jobs that wait or run take in each cell. Without it half of the policy's
    `live_bytes_max`, or all of it in a file of one tenant.
    """


class Limits(Part):
    """What no single job may pass, in every cell."""

    workers_per_job: Annotated[int, Field(strict=True, ge=1, le=WORKERS_MAX)] = 10_000
    """The largest number of workers of a job."""
    gpus_per_job: Annotated[int, Field(strict=True, ge=1, le=LARGEST_INTEGER)] = 100_000
    """The largest number of GPUs of a job."""
    retry_budget: Annotated[int, Field(strict=True, ge=0, le=LARGEST_INTEGER)] = 100
    """The largest `retry.budget` of a job."""
    submit_skew_ms: Annotated[int, Field(strict=True, ge=0, le=LATEST_MS)] | None = 10_000
    """How far a submit time may be from the cell time at which the submission came. `null`: any distance, for
    traces.
    """
    not_before_ahead_ms: Annotated[int, Field(strict=True, ge=0, le=LATEST_MS)] = 30 * 86_400_000
    """How far ahead of now the `not_before_ms` of a job may be."""


class CellFile(Part):
    """Everything that an operator decides before the first job comes."""

    cells: Annotated[tuple[CellPart, ...], Field(min_length=1)]
    """The cells of the installation."""
    tenants: Annotated[tuple[Tenant, ...], Field(min_length=1)]
    """Who may submit jobs. Those that are not named here may not."""
    limits: Limits = Limits()
    """What no single job may pass, in every cell."""
    retention_hours: dict[str, Annotated[int, Field(strict=True, ge=1, le=876_000)]] = {}
    """How long a topic keeps its records, where `deploy/kafka/topics.yaml` is to be overridden. The key is the
    topic without its namespace, such as `decisions`.
    """

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> CellFile:
        _once("cell", [cell.name for cell in self.cells])
        _once("ordinal", [str(cell.ordinal) for cell in self.cells])
        _once("pool", [pool.name for cell in self.cells for pool in cell.pools])
        _once("tenant", [tenant.name for tenant in self.tenants])
        names = {tenant.name for tenant in self.tenants}
        pools = {pool.name for cell in self.cells for pool in cell.pools}
        queues = {queue.name for cell in self.cells for queue in cell.queues}
        for tenant in self.tenants:
            _known(f"tenants.{tenant.name}.pools", tenant.pools, pools)
            _known(f"tenants.{tenant.name}.queue", (tenant.queue,) if tenant.queue else (), queues)
            _known(f"tenants.{tenant.name}.parent", (tenant.parent,) if tenant.parent else (), names)
            _once(f"GPU type of tenants.{tenant.name}.quotas", [quota.gpu_type for quota in tenant.quotas])
        if is_from_log(info):
            depths_of(self.tenants)
        else:
            self._quotas_fit()
        return self

    @model_validator(mode="after")
    def _fits_into_the_log(self, info: ValidationInfo) -> CellFile:
        if is_from_log(info):
            return self
        characters = len(self.content())
        if characters > CELL_FILE_CHARACTERS_MAX:
            rule = f"the log holds at most {CELL_FILE_CHARACTERS_MAX}"
            raise ValueError(f"the file has {characters} characters (as JSON, without comments and defaults): {rule}")
        return self

    def content(self) -> str:
        """The file as the log holds it: files that say the same are equal."""
        said = self.model_dump(mode="json", exclude_defaults=True)
        return json.dumps(said, separators=(",", ":"), sort_keys=True)

    def _quotas_fit(self) -> None:
        """The rules between quotas, and between what is guaranteed and the pools of each cell that has the GPU type."""
        count = count_quotas(self.tenants)
        if count > QUOTAS_MAX:
            why = "a tenant has one of its own of each GPU type of which a tenant above it has one"
            raise ValueError(f"tenants: together they have {count} quotas ({why}): a cell takes at most {QUOTAS_MAX}")
        listed = self.quotas()
        quotas = {(quota.tenant, quota.gpu_type): quota for quota in listed}
        fault = fault_among(quotas, listed, {tenant.name: None for tenant in self.tenants})
        if fault is not None:
            at = f"tenants.{fault.tenant}.quotas"
            raise ValueError(f"{at}: {fault.field} {fault.value} of {fault.gpu_type}: {fault.rule}")
        guaranteed_milli = guaranteed_by_type(quotas)
        for cell in self.cells:
            gpus = self.gpus_of(cell.name)
            fault = fault_in_pools(guaranteed_milli, gpus, gpus)
            if fault is not None:
                raise ValueError(f"cells.{cell.name}.pools: {fault} in {cell.name!r}")

    def gpus_of(self, cell: str) -> dict[str, int]:
        """How many GPUs of each type the cell's pools will ever have."""
        return self.cell(cell).gpus_by_type

    @property
    def own_topics(self) -> tuple[str, ...]:
        """The tenants whose commands come by a topic of their own, and by no other."""
        return tuple(tenant.name for tenant in self.tenants if tenant.own_topic)

    def cell(self, name: str) -> CellPart:
        """The cell of this name; KeyError if there is none."""
        for cell in self.cells:
            if cell.name == name:
                return cell
        raise KeyError(name)

    def quotas(self) -> tuple[Quota, ...]:
        """Every tenant's quotas, parents before children, else in the order of the file.

        A tenant gets a quota without a limit of its own for each GPU type in which an ancestor has one: the tree of a
        type is climbed along quotas, so without it the ancestor's limit would not bind.
        """
        return _quotas_of(self.tenants)


def depths_of(tenants: Sequence[Tenant]) -> dict[str, int]:
    """How many parents each tenant has above it. Raises ValueError for parents that form a cycle."""
    parents = {tenant.name: tenant.parent for tenant in tenants}
    found: dict[str, int] = {}
    for name in parents:
        line: dict[str, None] = {}
        above: str | None = name
        while above is not None and above not in found:
            if above in line:
                raise ValueError(f"tenants.{name}.parent: the parents form a cycle")
            line[above] = None
            above = parents[above]
        depth = -1 if above is None else found[above]
        for below in reversed(line):
            depth += 1
            found[below] = depth
    return found


@lru_cache(maxsize=4)
def _quotas_of(tenants: tuple[Tenant, ...]) -> tuple[Quota, ...]:
    """Made once, however often one asks: a reload asks several times in each of its decisions."""
    depths = depths_of(tenants)
    found: dict[tuple[str, str], Quota] = {}
    types: dict[str, list[str]] = {}
    for tenant in sorted(tenants, key=lambda tenant: depths[tenant.name]):
        inherited = [TenantQuota(gpu_type=type_) for type_ in types.get(tenant.parent or "", ())]
        quotas = (*tenant.quotas, *inherited)
        for quota in quotas:
            found.setdefault((tenant.name, quota.gpu_type), quota.in_milli(tenant.name, tenant.parent))
        types[tenant.name] = list(dict.fromkeys(quota.gpu_type for quota in quotas))
    return tuple(found.values())


def count_quotas(tenants: Sequence[Tenant]) -> int:
    """How many quotas these tenants have, with those that follow from the tenants above: counted on a walk down the
    tree, since to make them all may take far longer than their number tells. Raises ValueError for parents that form a
    cycle.
    """
    depths_of(tenants)
    below: dict[str | None, list[Tenant]] = {}
    for tenant in tenants:
        below.setdefault(tenant.parent, []).append(tenant)
    found, here = 0, Counter[str]()
    to_go = [(tenant, True) for tenant in below.get(None, ())]
    while to_go:
        tenant, is_entered = to_go.pop()
        types = [quota.gpu_type for quota in tenant.quotas]
        if not is_entered:
            for gpu_type in types:
                here[gpu_type] -= 1
                if not here[gpu_type]:
                    del here[gpu_type]
            continue
        here.update(types)
        found += len(here)
        to_go.append((tenant, False))
        to_go += [(each, True) for each in below.get(tenant.name, ())]
    return found


def _shown(name: str) -> str:
    """A name that nothing has bounded yet: of a long one its begin, and how long it is."""
    begin = written(name)
    return f"{begin} of {len(name):,} characters" if begin.endswith("...") else begin


def _once(what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name!r} stands twice")
        seen.add(name)


def _known(field: str, names: tuple[str, ...], known: set[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{field}: {name!r} is not defined in this file")
