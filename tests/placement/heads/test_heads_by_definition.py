"""What is known of heads for groups of jobs and blocks of heads is what each head for itself says of a job then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import example, given

from fallow.services.placement.owners.owners_first import borrows, fits_in, kept_for_it, nodes_of_types
from fallow.services.placement.queue import head_index, scheduling_cycle
from fallow.services.placement.queue.heads import Group, Head, Heads, JobClass, _above, _lined
from fallow.services.placement.queue.lines.blocked import ANY
from fallow.services.placement.queue.lines.classes import room_of
from fallow.services.placement.queue.lines.row import Need
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.job import HOLDING
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events.fields.values import GPU, JobSpec, Resources
from fallow.shared.events.nodes import NodeJoined
from fallow.shared.events.operations import Quota
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import Story, reaches, stories
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cell_with,
    finished,
    joined,
    set_policy,
    set_quotas,
    spec_of,
)

Nodes = set[tuple[str, int]]

NODES = 12
TENANTS = ("ada", "bob", "cy")
GPU_TYPES = ("large", "small")
WAIT_MS = 3_000
KINDS = 2
"""Most jobs are of so many kinds, so that several need the same room."""

WHAT = (
    KEEPS := "a head keeps a job back",
    LEAVES := "heads leave a job some of its nodes",
    OF_TENANT := "a job is asked about whose tenant has a head before its turn",
    BORROWS := "a head borrows since another job has started",
    GONE := "a head is gone before the walk is over",
    CUT := "a job starts that took room from a head before its turn",
    ABOVE := "a head borrows since a job has started of a tenant below a guarantee",
    ARRAYS := "a job of an array is asked about",
    EXCLUSIVE := "a job that will be alone on its nodes is asked about",
    CHANGED := "a quota is changed between two walks",
)


class JudgedHeads(Heads):
    """Each answer is held against those of all heads, one by one."""

    __slots__ = ()

    seen: Counter[str] = Counter()

    def over(self, need: Need, spec: JobSpec) -> Head | None:
        found = super().over(need, spec)
        in_order = [*self._due, *self._others]
        reach = nodes_of(self.reach(need, spec))
        assert found is next((head for head in in_order if reach & self.kept(head, need, spec)), None)
        self.seen[KEEPS] += found is not None
        self.seen[OF_TENANT] += spec.tenant in self._first_of_tenant and spec.id not in self._first
        self.seen[ARRAYS] += spec.id.rpartition(".")[0] in self._state.arrays
        self.seen[EXCLUSIVE] += spec.exclusive
        return found

    def room_beside(self, need: Need, spec: JobSpec) -> dict[str, int]:
        found = super().room_beside(need, spec)
        reach = nodes_of(self.reach(need, spec))
        left = reach.difference(*(self.kept(head, need, spec) for head in self._due))
        assert nodes_of(found) == left
        self.seen[LEAVES] += set() < left < reach
        return found

    def usage_changed(self, tenant: str) -> None:
        before = self._borrowing._known
        super().usage_changed(tenant)
        is_known_anew = self._borrowing._known is not before
        self.seen[BORROWS] += is_known_anew
        self.seen[ABOVE] += is_known_anew and any(
            tenant != name and quota.guaranteed_milli
            for (name, _), quota in self._state.quotas.items()
            if name in above(self._state, tenant)
        )
        self.judge_groups()

    def started(self, job_id: str) -> bool:
        cut = len(self._cut) - (job_id in self._cut)
        is_gone = super().started(job_id)
        self.seen[GONE] += is_gone
        self.seen[CUT] += is_gone and len(self._cut) < cut
        assert self._before_turns == {job_class: self.of_class(job_class)[0] for job_class in self._first.values()}
        self.judge_groups()
        return is_gone

    def judge_groups(self) -> None:
        """What is known of a block for a group is what its heads keep from it now."""
        for group, of_both in self._groups.items():
            for heads, kept in zip((self._due, self._others), of_both, strict=True):
                for at, block in enumerate(heads.blocks):
                    there = [head for head in block.heads if head is not None]
                    assert nodes_of(kept.of_block(at)) == set().union(*(self.kept_from(head, group) for head in there))

    def kept_from(self, head: Head, group: Group) -> Nodes:
        """What a head keeps from the jobs of a group."""
        is_silent = self.is_before_its_turn(head) and head.spec.id not in self._to_come
        if (head.spec.tenant == group.tenant and is_silent) or head.under not in {None, *group.above}:
            return set()
        owners = [*group.fits_in, *(group.kept_for_it if head.code is PendingReason.RESERVED_FOR_OTHER else ())]
        return nodes_of(head.reach).difference(self.lent(head, owners) if self.may_pass(head) else ())

    def of_class(self, job_class: JobClass) -> list[str]:
        """The heads before their turns that need the same room and are of the same tenant, the oldest first."""
        jobs = [job_id for job_id, each in self._first.items() if each == job_class]
        return sorted(jobs, key=lambda job_id: (self._state.heads[job_id], self._state.jobs[job_id].number))

    def is_before_its_turn(self, head: Head) -> bool:
        """Whether the head was met in this queue, and stands here for the time before its turn."""
        return not head.is_of_earlier and head.is_before_turns

    def may_pass(self, head: Head) -> bool:
        """Whether owners may pass a head."""
        return (head.is_of_earlier or head.is_for_owners) and bool(self._state.quotas)

    def kept(self, head: Head, need: Need, spec: JobSpec) -> Nodes:
        """What a head keeps from this job now."""
        if not self.holds(head, need, spec) or not (head.under is None or head.under in _above(self._state, spec)):
            return set()
        lined = _lined(need, spec)
        owners = list(fits_in(self._state, lined).values())
        if head.code is PendingReason.RESERVED_FOR_OTHER:
            owners += kept_for_it(self._state, lined)
        return nodes_of(head.reach).difference(self.lent(head, owners) if self.may_pass(head) else ())

    def lent(self, head: Head, owners: list[Account]) -> Iterator[tuple[str, int]]:
        """The nodes of the GPU types that the head would borrow from these."""
        types = [owner[1] for owner in owners if borrows(self._state, head.spec, owner)]
        for name in self._state.pools:
            yield from nodes_of({name: nodes_of_types(self._state, name, types)})

    def holds(self, head: Head, need: Need, spec: JobSpec) -> bool:
        """Whether it holds for the job: by shares others than its tenant's go by who has waited longer, where the job
        is a head before its turn, or needs the same as one of its tenant.
        """
        is_own, is_first = head.spec.tenant == spec.tenant, spec.id in self._first
        oldest = spec.id if is_first else next(iter(self.of_class((need, spec.tenant))), None)
        if head.is_of_earlier or (is_own and not self.is_before_its_turn(head)):
            return True
        if oldest is None or (is_own and not is_first):
            return not is_own or head.spec.id in self._to_come
        number, number_of_oldest = self._state.jobs[head.spec.id].number, self._state.jobs[oldest].number
        since_ms = self._state.heads[oldest]
        return head.is_due and (head.since_ms or 0, number) < (since_ms, number_of_oldest)


def above(state: CellState, tenant: str) -> list[str]:
    """The tenant, and those above it."""
    found = [tenant]
    while parents := [each.parent for (name, _), each in state.quotas.items() if name == found[-1] and each.parent]:
        found.append(parents[0])
    return found


def nodes_of(reach: dict[str, int]) -> Nodes:
    return {(name, node) for name, mask in reach.items() for node in range(mask.bit_length()) if mask >> node & 1}


def test_when_one_of_three_heads_of_a_class_starts_the_oldest_of_the_others_speaks_for_it() -> None:
    """Bob's head is younger than that one, and keeps nothing from a job that needs what this waits for."""
    world = cell_with(joined("n1", 8), joined("n2", 8), joined("n3", 8))
    ids = ("oldest", "bobs", "second", "third", "fourth")
    world.tell(*(admitted(spec_of(f"fill-{number}", 8, tenant="eve"), 0) for number in range(3)))
    world.tell(*(admitted(spec_of(job, 8, tenant="bob" if job == "bobs" else "ada"), 0) for job in ids))
    state = world.state
    jobs = {job: state.jobs[job] for job in ids}
    need = Need(room_of(state, jobs["oldest"].spec), "", ANY)
    rooms = {"oldest": {"train": 0b001}, "bobs": {"train": 0b010}, "second": {"train": 0b001}, "third": {"train": 0}}
    state.heads.update({job: at_ms for at_ms, job in enumerate(rooms)})
    heads = Heads(state, WAIT_MS)
    for job, room in rooms.items():
        heads.add_before_turns(jobs[job], need, None, room)
    assert heads.started("third")
    assert heads.room_beside(need, jobs["fourth"].spec) == {"train": 0b110}


def cell_of(story: Story) -> World:
    """One or two queues, of which the last one goes by shares and backfills; tenants of which some stand below one."""
    fair = Queue(name="fair", order=QueueOrder.FAIR_SHARE, discipline=QueueDiscipline.BACKFILL)
    other = Queue(name="other", order=story.choice(list(QueueOrder)), discipline=story.choice(list(QueueDiscipline)))
    queues = (fair,) if story.random() < 0.6 else (other, fair)
    pools = tuple(Pool(name=each, gpus=4 * NODES, gpu_type=each) for each in GPU_TYPES)
    part = CellPart(name=CELL, ordinal=0, pools=pools, queues=queues)
    tenants = (Tenant(name="top"), *(Tenant(name=name, parent=story.choice((None, "top"))) for name in TENANTS))
    world = World(CellFile(cells=(part,), tenants=tenants))
    world.checks, world.may_refuse = False, True
    world.tell(set_policy(backfill_wait_ms=WAIT_MS), *(node(number) for number in range(NODES)))
    for quota in [each for tenant in tenants for each in quotas_of(story, tenant)]:
        world.tell(set_quotas(quota))  # one that contradicts others is refused
    return world


def node(number: int) -> NodeJoined:
    gpu_type = GPU_TYPES[number % 2]
    return joined(f"n{number}", 4, pool=gpu_type, gpu_type=gpu_type, labels={"at": f"n{number}"})


def quotas_of(story: Story, tenant: Tenant) -> list[Quota]:
    found = []
    for gpu_type in GPU_TYPES:
        least = (0, 0, 4) if tenant.parent else (0, 4, 8)
        guaranteed = story.choice((0, 8, 16) if tenant.name == "top" else least)
        limit = story.choice((None, None, None, 8, 16, 40))
        own = Quota(
            tenant=tenant.name,
            gpu_type=gpu_type,
            guaranteed_milli=guaranteed * GPU,
            limit_milli=None if limit is None else max(limit, guaranteed) * GPU,
            parent=tenant.parent,
        )
        found.append(own)
    return found


def one_round(world: World, story: Story, number: int) -> None:
    """Jobs come, or some are over, or time passes."""
    what = story.random()
    if what < 0.6:
        world.hand_over(*(admitted(spec(world, story, f"j{number}-{each}"), world.now_ms) for each in range(6)))
        world.rest()
    elif what < 0.65:
        quota = story.choice(quotas_of(story, story.choice(world.file.tenants)))
        before = dict(world.state.quotas)
        world.tell(set_quotas(quota))
        JudgedHeads.seen[CHANGED] += world.state.quotas != before
    elif what < 0.85:
        holding = [job for job in world.state.jobs.values() if job.status in HOLDING]
        over = story.sample(holding, min(len(holding), story.choice((1, 3, 10))))
        world.tell(*(finished(job.id, node, job.attempt) for job in over for node in job.runs))
    else:
        world.pass_time(WAIT_MS)


def spec(world: World, story: Story, name: str) -> JobSpec:
    likes = Story((story.randrange(KINDS),)) if story.random() < 0.7 else story
    nodes = {likes.randrange(NODES) for _ in range(likes.choice((1, 2, 4, NODES)))}
    return JobSpec(
        id=name,
        tenant=likes.choice(TENANTS),
        queue=story.choice(world.file.cells[0].queues).name,
        workers=likes.choice((1, 1, 1, 2)),
        resources=Resources(gpu_milli=likes.choice((500, GPU, 2 * GPU, 4 * GPU, 4 * GPU))),
        priority=story.choice((0, 0, 1)),
        gang=story.random() < 0.9,
        preemptible=story.random() < 0.6,
        exclusive=likes.random() < 0.05,
        array=story.choice((2, 3)) if story.random() < 0.05 else None,
        node_labels=(f"at={'|'.join(f'n{node}' for node in sorted(nodes))}",),
    )


TOOK_ROOM = (
    852622653,
    601810333,
    20515143,
    319618978,
    952294819,
    95478136,
    492939009,
    214008402,
    612198059,
    359557843,
    36991431,
    119142893,
    918178170,
    494432881,
    238355686,
    618815210,
    748744489,
)
"""A story in which a job starts that took room from a head before its turn: of those drawn few come to that."""


@given(stories(16))
@example(Story(TOOK_ROOM))
def test_what_is_known_of_heads_is_what_each_of_them_says(story: Story) -> None:
    JudgedHeads.seen = Counter()
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(scheduling_cycle, "Heads", JudgedHeads)
        changed.setattr(head_index, "BLOCK", story.choice((1, 2, 3, 32)))
        world = cell_of(story)
        for number in story.rounds():
            one_round(world, story, number)
    for what in WHAT:
        reaches(what, bool(JudgedHeads.seen[what]))
