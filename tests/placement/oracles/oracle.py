"""A naive scheduler: it sorts all that wait, and tries all of them, again and again.

The oracle of who comes first and who keeps back whom. Where one job finds places, and which jobs need the same room, it
is told by placement itself (`place_gang`, `room_of`), so it is how much an exclusive job takes (`takes_milli`), and
shares by `Shares`: these have tests of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import floor

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.queue.fair_share import Shares
from fallow.services.placement.queue.lines.classes import room_of
from fallow.services.placement.requests.arrays import may_start_one_more
from fallow.services.placement.search.gang import Places, place_gang
from fallow.services.placement.search.quota_check import waits_by_types
from fallow.services.placement.search.whole_nodes import takes_milli
from fallow.services.placement.service import PlacementService
from fallow.shared.cluster.capacity.taken_alone import with_whole_nodes
from fallow.shared.cluster.model.config import CellPart, Queue
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.node import Node, bits
from fallow.shared.cluster.model.unacknowledged import closed
from fallow.shared.cluster.quota.quota import Account, accounts, over_limit
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import next_chain
from fallow.shared.events.fields.values import GPU, JobSpec, NodeStatus
from fallow.shared.events.operations import Quota
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason
from fallow.shared.log.machine.writer import Draft
from tests.placement.worlds.world import CELL, World

NEVER_WAITED_FOR = (PendingReason.NO_SUCH_NODES, PendingReason.RECORD_TOO_LARGE)
OF_TENANT = (PendingReason.QUOTA_REACHED, PendingReason.RESERVED_FOR_OTHER)
NOT_WAITED_FOR = (*NEVER_WAITED_FOR, PendingReason.MAINTENANCE)

ROOM: Account = ("", "room")
"""What an exclusive job waits for that quotas allow on smaller nodes than those that it would get."""

HeadOf = tuple[Job, PendingReason, Account | None, frozenset[str]]
"""A job that waits for room, and what keeps it; where that is a limit, the account that it would pass, or None where it
waits for what is guaranteed to nobody.
"""


class Idle(PlacementService):
    """Placement that does all but start jobs."""

    def _walk(self, _: DecisionBuilder) -> bool:
        return False


class LinesWorld(World):
    """A world whose placement goes by its lines."""

    def settle(self, *events: Event) -> None:
        """Hand these over, and let placement go on until it is at rest."""
        self.tell(*events)


class NaiveWorld(World):
    """A world in which each waiting job of each queue is looked at, one after the other."""

    placement = Idle
    _is_by_tenant = False

    def settle(self, *events: Event) -> None:
        """Hand these over, then walk all queues whole; again after starts, which change whose turn it is."""
        self.tell(*events)
        while self._walk_all():
            pass

    def _walk_all(self) -> bool:
        self.writer.begin()
        made, due = list[e.AnyEffect](), list[HeadOf]()
        for queue in self._part.queues:
            done, due = self._walk(queue, due)
            made += done
        if not made:
            self.writer.abandon()
            return False
        draft = self.writer.draft(list(made), {}, self.now_ms)
        assert isinstance(draft, Draft), draft
        assert draft.chain == next_chain(self.state.chain, encode(draft.decision))
        self._record(draft)
        return any(isinstance(effect, e.JobStarted) for effect in made)

    @property
    def _part(self) -> CellPart:
        return self.file.cell(CELL)

    def _record(self, draft: Draft) -> None:
        self._keep(draft)
        assert self.writer.appended(len(self.log) - 1)
        self.service.note(draft.decision.effects, self.wall_ms)

    def _walk(self, queue: Queue, due: list[HeadOf]) -> tuple[list[e.AnyEffect], list[HeadOf]]:
        """One queue behind the heads of those before it. What is done, and the heads that the next queues meet.

        Heads keep back those that need the same; others that do not fit are nobody's head.
        """
        made, own = list[e.AnyEffect](), list[HeadOf]()
        is_strict = queue.discipline is QueueDiscipline.STRICT_FIFO
        for job in self._turns(queue):
            over = [head for head in due if self._is_kept_by(job, *head) and not self._is_owner_before(job, *head[:2])]
            over += [head for head in own if self._is_kept_by(job, *head) and not self._may_pass(queue, job, *head[:3])]
            in_the_way = [head for head in over if head in due or self._is_due(queue, head[0])]
            found = self._find_beside(job, in_the_way) if in_the_way else self._find(job)
            by_head = bool(in_the_way) and self._is_head_by_tenant(queue, in_the_way[0], due)
            self._is_by_tenant = found in OF_TENANT or by_head
            if in_the_way and found not in (*NOT_WAITED_FOR, PendingReason.BEHIND_HEAD):
                over = []  # it waits for other nodes than those heads
            waits = bool(self._heads_like(queue, job)) and not in_the_way and not self._is_met(job, own)
            if not isinstance(found, PendingReason):
                made.append(self._done(e.JobStarted(job=job.id, attempt=job.attempt + 1, workers=found)))
            elif queue.discipline is QueueDiscipline.BEST_EFFORT_FIFO:
                continue
            elif self._waits_for_ever(job, found):
                if not is_strict and not in_the_way and job.id in self.state.heads:
                    made.append(self._done(e.HeadCleared(job=job.id)))
            elif (not over or waits) and (is_strict or found not in NOT_WAITED_FOR):
                nodes = self._nodes_of(job) - self._kept_by(in_the_way)
                nodes -= frozenset() if found is PendingReason.MAINTENANCE else frozenset(_shut_for(self, job.spec))
                own.append((job, found, self._limit_of(job), nodes))
                if not is_strict and job.id not in self.state.heads:
                    made.append(self._done(e.HeadBlocked(job=job.id)))
        lasting = [head for head in own if self._is_due(queue, head[0]) and head[1] not in NOT_WAITED_FOR]
        return made, due + lasting

    def _is_head_by_tenant(self, queue: Queue, head: HeadOf, due: list[HeadOf]) -> bool:
        """Whether it goes by whose job it is whether this head keeps it back."""
        is_by_quota = head in due or queue.discipline is QueueDiscipline.BACKFILL or head[1] in OF_TENANT
        return head[1] is PendingReason.QUOTA_REACHED or (is_by_quota and bool(self.state.quotas))

    def _waits_for_ever(self, job: Job, why: PendingReason) -> bool:
        """Whether no room would help it, whatever ends."""
        return why in NEVER_WAITED_FOR or not may_ever_use(self, job.spec)

    def _is_due(self, queue: Queue, head: Job) -> bool:
        if queue.discipline is QueueDiscipline.STRICT_FIFO:
            return True
        since_ms = min(self._heads_like(queue, head), default=self.now_ms)
        return self.now_ms - since_ms >= self.state.policy.backfill_wait_ms

    def _is_met(self, job: Job, heads: list[HeadOf]) -> bool:
        """Whether a job for which there is no room for the same reason is one of these heads."""
        like = [head for head in heads if room_of(self.state, head[0].spec) == room_of(self.state, job.spec)]
        return any(why not in OF_TENANT or _are_of_one_class(head.spec, job.spec) for head, why, *_ in like)

    def _heads_like(self, queue: Queue, job: Job) -> list[int]:
        """Since when heads that need the same room wait in the queue, by shares those of its tenant, and the job if it
        is one itself.
        """
        since_ms, need = self.state.heads, room_of(self.state, job.spec)
        heads = [self.state.jobs[head] for head in since_ms if head in self.state.jobs]
        like = [head for head in heads if self._is_in(queue, head) and room_of(self.state, head.spec) == need]
        is_fair = queue.order is QueueOrder.FAIR_SHARE
        return [since_ms[each.id] for each in like if not is_fair or each.spec.tenant == job.spec.tenant]

    def _find(self, job: Job) -> Places | PendingReason:
        """Places without the nodes that the job avoids where that costs nothing, without those of its last failures if
        it needs some of them, or else with them.
        """
        anywhere = found = place_gang(self.state, job.spec)
        avoided = [self.state.nodes[node] for node in job.avoid if node in self.state.nodes]
        while avoided and isinstance(found := self._without(avoided, job.spec), PendingReason):
            avoided = avoided[1:]
        if isinstance(found, PendingReason) or isinstance(anywhere, PendingReason):
            return anywhere
        return anywhere if self._on_maintained(found) > self._on_maintained(anywhere) else found

    def _on_maintained(self, places: Places) -> int:
        """How many workers of these would be on nodes with planned maintenance."""
        return sum(self.state.nodes[place.node].maintenance_ms is not None for place in places)

    def _find_beside(self, job: Job, heads: list[HeadOf]) -> Places | PendingReason:
        """Places on nodes where none of these heads could be."""
        here, kept = self._nodes_of(job), self._kept_by(heads)
        if here <= kept or any(why is PendingReason.QUOTA_REACHED and limit != ROOM for _, why, limit, _ in heads):
            return PendingReason.BEHIND_HEAD
        with closed(
            self.state, [node for node in self.state.nodes.values() if node.id in here & kept and node.is_schedulable]
        ):
            return self._find(job)

    def _nodes_of(self, job: Job) -> frozenset[str]:
        """Where the job could be."""
        return frozenset(node.id for node in self.state.nodes.values() if _could_be(self, job.spec, node))

    def _kept_by(self, heads: list[HeadOf]) -> frozenset[str]:
        """The nodes of these heads. One that another head keeps back is a head only of the nodes beside."""
        return frozenset().union(*(nodes for *_, nodes in heads))

    def _without(self, nodes: Sequence[Node], spec: JobSpec) -> Places | PendingReason:
        """Places while these nodes take nothing; what is idle there counts for quotas all the same."""
        with closed(self.state, [node for node in nodes if node.is_schedulable]):
            return place_gang(self.state, spec)

    def _turns(self, queue: Queue) -> Iterator[Job]:
        """The jobs of a queue, each when it is its turn. Elements whose array may have no more have none. By shares
        those that are like one that does not start come with it, since they decide no tie any more.
        """
        waiting, is_fair = self._line(queue), queue.order is QueueOrder.FAIR_SHARE
        while waiting := [job for job in waiting if may_start_one_more(self.state, job.spec)]:
            job = self._next(waiting) if is_fair else waiting[0]
            waiting.remove(job)
            yield job
            if is_fair and job.status is JobStatus.QUEUED:
                like = [other for other in waiting if self._are_alike(job, other)]
                waiting = [other for other in waiting if other not in like]
                yield from like

    def _are_alike(self, job: Job, other: Job) -> bool:
        """Whether the other one waits for the same reason as this one, which was tried last."""
        one, two = job.spec, other.spec
        if one.tenant != two.tenant or room_of(self.state, one) != room_of(self.state, two):
            return False
        return _are_of_one_class(one, two) or not self._is_by_tenant

    def _next(self, waiting: list[Job]) -> Job:
        """The first job of the tenant with the smallest share, level by level; of equal ones the first to come."""
        shares, firsts = Shares(self.state, max(self.now_ms, self.state.at_ms)), dict[str, Job]()
        for job in waiting:
            firsts.setdefault(job.spec.tenant, job)

        def best(level: int, among: list[Job]) -> Job:
            """Of tenants that stand below the same ones down to this level."""
            parts: dict[str, list[Job]] = {}
            for job in among:
                line = shares.line(job.spec.tenant)
                parts.setdefault(line[level] if level < len(line) else "", []).append(job)
            found = {name: part[0] if not name else best(level + 1, part) for name, part in parts.items()}

            def key(name: str) -> tuple[bool, int, int, int]:
                job = found[name]
                share = shares.of(name) if name else shares.own(job.spec.tenant)
                return (share.has_no_weight, share.share, job.submit_ms, job.number)

            return found[min(found, key=key)]

        return best(0, list(firsts.values()))

    def _is_kept_by(
        self, job: Job, _head: Job, why: PendingReason, limit: Account | None, nodes: frozenset[str]
    ) -> bool:
        here = self._nodes_of(job)
        if why is not PendingReason.QUOTA_REACHED or limit == ROOM:
            return bool(here & nodes)
        # What is left below a limit is used up on any node. A head that other heads, or maintenance, keep from each of
        # its nodes could not use what is left there: it keeps nothing.
        is_under = limit is None or limit in accounts(self.state.quotas, job.spec.tenant, "gpu")
        return bool(here and nodes) and is_under

    def _is_owner_before(self, job: Job, head: Job, why: PendingReason) -> bool:
        """Whether the job fits whole into a guarantee from which the head would borrow, or the head waits for what is
        kept for the job's line, and would borrow that.
        """
        line, kept = self._line_of(job), [account[0] for account in self.state.tree.kept.owners]
        owner = next((name for name in line if self._is_sure(job, name)), None)
        waited_for = [name for name in line if name in kept] if why is PendingReason.RESERVED_FOR_OTHER else []
        return any(self._would_borrow(head, name) for name in (owner, *waited_for) if name is not None)

    def _would_borrow(self, head: Job, owner: str) -> bool:
        """Whether the head would borrow from this owner: one that is not above the head, which fits into none of its
        own line that is not above both.
        """
        its_line = self._line_of(head)
        above = [account[0] for account in accounts(self.state.quotas, owner, "gpu")]
        return owner not in its_line and not any(self._is_sure(head, name) for name in its_line if name not in above)

    def _line_of(self, job: Job) -> list[str]:
        """The job's tenant and those above it."""
        return [account[0] for account in accounts(self.state.quotas, job.spec.tenant, "gpu")]

    def _is_sure(self, job: Job, tenant: str) -> bool:
        """Whether all of the job fits into what is guaranteed to this tenant, its own one or one above it."""
        return self.state.usage.get((tenant, "gpu"), 0) + job.spec.gpus_milli <= self._guaranteed(tenant)

    def _firm_left(self, tenant: str) -> int:
        """What is left of what is guaranteed to a tenant, and there to nobody below it."""
        below = [name for (name, _), quota in self.state.quotas.items() if quota.parent == tenant]
        return self._idle_of(tenant) - sum(max(0, self._idle_of(other)) for other in below)

    def _idle_of(self, tenant: str) -> int:
        return self._guaranteed(tenant) - self.state.usage.get((tenant, "gpu"), 0)

    def _guaranteed(self, tenant: str) -> int:
        """What is guaranteed to a tenant, and never less than to those right below it."""
        quota = self.state.quotas.get((tenant, "gpu"))
        below = [other for other in self.state.quotas.values() if other.parent == tenant]
        return max(sum(other.guaranteed_milli for other in below), 0 if quota is None else quota.guaranteed_milli)

    def _may_pass(self, queue: Queue, job: Job, head: Job, why: PendingReason, limit: Account | None) -> bool:
        """Whether the job passes this head of its own queue as an owner."""
        by_guarantees = why is PendingReason.RESERVED_FOR_OTHER or (
            why is PendingReason.QUOTA_REACHED and limit is None
        )
        return (queue.discipline is QueueDiscipline.BACKFILL or by_guarantees) and self._is_owner_before(job, head, why)

    def _limit_of(self, head: Job) -> Account | None:
        """The account whose limit the job would pass, or of whose guarantee too little is left; else None where open
        nodes may ever hold enough beside all guarantees, and its own one where they never do.
        """
        account, spec = (head.spec.tenant, "gpu"), head.spec
        if spec.exclusive and waits_by_types(self.state, spec).room:
            return ROOM  # its quotas allow smaller nodes than those that are free
        over = over_limit(self.state.tree, *account, spec.gpus_milli)
        if over is not None:
            return over
        taken_milli = takes_milli(self.state, spec, "gpu")
        line = accounts(self.state.quotas, *account) if not spec.preemptible else []
        sure = next((each for each in line if self._guaranteed(each[0])), None)
        with with_whole_nodes(self.state):
            if sure is not None and taken_milli > self._firm_left(sure[0]):
                return sure
        open_milli = _healthy_milli(self)
        lets_have = taken_milli <= open_milli and _family(self).lets_have(spec, open_milli, taken_milli)
        return None if lets_have else account

    def _done(self, effect: e.AnyEffect) -> e.AnyEffect:
        self.do(effect)
        return effect

    def _line(self, queue: Queue) -> list[Job]:
        waiting = [job for job in self.state.jobs.values() if self._is_in(queue, job)]
        return sorted(waiting, key=lambda job: _place(queue, job))

    def _is_in(self, queue: Queue, job: Job) -> bool:
        """Whether it waits in this queue for its turn."""
        is_waiting = job.status is JobStatus.QUEUED and job.not_before_ms <= self.now_ms
        return is_waiting and job.spec.queue == queue.name


def _are_of_one_class(one: JobSpec, two: JobSpec) -> bool:
    arrays = [spec.array_of if spec.array_max_running is not None else None for spec in (one, two)]
    kinds = [(spec.tenant, spec.priority, spec.preemptible) for spec in (one, two)]
    return kinds[0] == kinds[1] and arrays[0] == arrays[1]


def _place(queue: Queue, job: Job) -> tuple[int, int, int, int]:
    """By priority and time; or by time, of which a priority is worth some; then by who came first. The worth grows to
    the most that it may be as 1 / (1 / steps + 1 / most) does.
    """
    priority, submit_ms = job.spec.priority, job.submit_ms
    if not queue.aging_ms:
        return (0, -priority, submit_ms, job.number)
    worth_ms = 0
    if priority:
        worth_ms = floor(1 / (Fraction(1, abs(priority) * queue.aging_ms) + Fraction(1, queue.aging_max_ms)))
    return (submit_ms - (worth_ms if priority > 0 else -worth_ms), -priority, submit_ms, job.number)


def could_ever_start(world: World, spec: JobSpec) -> bool:
    """Whether any pool of the job's has room for all of its workers when it is empty, counted node by node."""
    return max(_room_by_pool(world, spec).values(), default=0) >= spec.workers


def waits_for_closed(world: World, spec: JobSpec) -> bool:
    """Whether it needs nodes that a person has closed."""
    closed = (NodeStatus.CORDONED, NodeStatus.DRAINING)
    return max(_room_by_pool(world, spec, closed).values(), default=0) < spec.workers


def waits_for_maintenance(world: World, spec: JobSpec) -> bool:
    """Whether it needs nodes whose maintenance begins before it would be over."""
    shut = _shut_for(world, spec)
    return max(_room_by_pool(world, spec, without=shut).values(), default=0) < spec.workers


def _shut_for(world: World, spec: JobSpec) -> list[str]:
    """The nodes whose maintenance begins before the job would be over."""
    state = world.state
    told_ms = spec.estimate_run_ms if spec.max_run_ms is None else spec.max_run_ms
    longest_ms = state.policy.default_run_estimate_ms if told_ms is None else told_ms
    over_ms = max(state.at_ms, state.clock_ms) + longest_ms
    return [node for node, begin_ms in state.maintenance_starts.items() if begin_ms < over_ms]


def may_ever_use(world: World, spec: JobSpec) -> bool:
    """Whether the quotas would let the job start if nothing was in use on nodes that no person has closed: counted from
    the quotas, tenant by tenant.
    """
    taken_milli = takes_milli(world.state, spec, "gpu")
    return not world.state.quotas or _family(world).lets_have(spec, _healthy_milli(world), taken_milli)


def _healthy_milli(world: World) -> int:
    """On nodes that are neither lost nor closed by a person."""
    gone = (NodeStatus.LOST, NodeStatus.CORDONED, NodeStatus.DRAINING)
    alive = [node for node in world.state.nodes.values() if node.status not in gone]
    return sum(GPU * (node.spec.gpus - len(bits(node.failed))) for node in alive)


def _family(world: World) -> _Family:
    return _Family({tenant: each for (tenant, gpu_type), each in world.state.quotas.items() if gpu_type == "gpu"})


class _Family:
    """Tenants while nothing is in use: what is guaranteed to each with all below it (`sure`), what it has of its own
    beside what its children keep at home (`own`), and what of that it lends to nobody above (`home`).
    """

    def __init__(self, quotas: Mapping[str, Quota]) -> None:
        named = [*quotas, *(quota.parent for quota in quotas.values() if quota.parent is not None)]
        self._quotas = {name: quotas.get(name, Quota(tenant=name, gpu_type="gpu")) for name in named}
        self._sure: dict[str, int] = {}
        self._own: dict[str, int] = {}
        self._home: dict[str, int] = {}
        self._tops = [name for name, quota in self._quotas.items() if quota.parent is None]
        self._all_at_home = sum(self._count(name) for name in self._tops)

    def _children(self, name: str) -> list[str]:
        return [child for child, quota in self._quotas.items() if quota.parent == name]

    def _count(self, name: str) -> int:
        """Count this tenant, and tell what stays at home there and below."""
        quota, below = self._quotas[name], sum(self._count(child) for child in self._children(name))
        self._sure[name] = max(quota.guaranteed_milli, sum(self._sure[child] for child in self._children(name)))
        self._own[name] = self._sure[name] - below
        lent_max = quota.lend_limit_milli if quota.lends else 0
        self._home[name] = 0 if lent_max is None else max(0, self._own[name] - lent_max)
        return below + self._home[name]

    def lets_have(self, spec: JobSpec, free_milli: int, taken_milli: int) -> bool:
        """`taken_milli`: with what is beside an exclusive job, which no limit charges."""
        need, from_others, taken_from_others = spec.gpus_milli, spec.gpus_milli, taken_milli
        name, keeper = spec.tenant if spec.tenant in self._quotas else None, None
        while name is not None:
            quota = self._quotas[name]
            most = quota.borrow_limit_milli if quota.borrows else 0
            if quota.limit_milli is not None and need > quota.limit_milli:
                return False
            if most is not None and from_others > self._own[name] + most:
                return False
            from_others = max(0, from_others - self._home[name])
            taken_from_others = max(0, taken_from_others - self._home[name])
            keeper = keeper or (name if self._sure[name] else None)
            name = quota.parent
        if not spec.preemptible and taken_milli > self._firm(keeper, free_milli):
            return False
        is_too_much = taken_milli > free_milli
        return not taken_from_others or is_too_much or taken_from_others <= free_milli - self._all_at_home

    def _firm(self, keeper: str | None, free_milli: int) -> int:
        """What a job may have that cannot be taken back from it."""
        if keeper is None:
            return free_milli - sum(self._sure[top] for top in self._tops)
        return self._sure[keeper] - sum(self._sure[child] for child in self._children(keeper))


def _room_by_pool(
    world: World, spec: JobSpec, closed: Sequence[NodeStatus] = (), without: Sequence[str] = ()
) -> dict[str, int]:
    """How many of its workers each pool of the job's would hold without nodes that are so, and without these."""
    room: dict[str, int] = {}
    for node in world.state.nodes.values():
        if node.status not in closed and node.id not in without and (not spec.pools or node.pool in spec.pools):
            room[node.pool] = room.get(node.pool, 0) + _workers_on(spec, node)
    return room


def _could_be(world: World, spec: JobSpec, node: Node) -> bool:
    """Whether the node would hold a worker of the job, and its pool all of a gang without the nodes that a person has
    closed.
    """
    least = spec.workers if spec.gang else 1
    closed = (NodeStatus.CORDONED, NodeStatus.DRAINING) if spec.gang else ()
    return _workers_on(spec, node) > 0 and _room_by_pool(world, spec, closed).get(node.pool, 0) >= least


def _workers_on(spec: JobSpec, node: Node) -> int:
    """How many workers the node would hold if it were empty."""
    right = ["zone=a" if node.spec.labels.get("zone") == "a" else "zone!=a"] * len(spec.node_labels)
    is_tolerated = all(taint in spec.tolerations for taint in node.spec.taints)
    if node.status is NodeStatus.LOST or not is_tolerated or list(spec.node_labels) != right:
        return 0
    wants, devices = spec.resources, node.spec.gpus - node.failed.bit_count()
    on_one, each = max(GPU // wants.gpu_milli, 1), max(wants.gpu_milli // GPU, 1)
    by_memory = node.spec.memory_mib // wants.memory_mib if wants.memory_mib else devices * on_one
    return min(devices * on_one // each, node.spec.cpu_milli // max(wants.cpu_milli, 1), by_memory)
