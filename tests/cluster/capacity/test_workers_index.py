"""The index of a job's single workers tells what a search through all of them would tell."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.model.job import Job, index_of, worker_of
from fallow.shared.cluster.model.workers_index import LEFT_MAX
from fallow.shared.events.fields.values import JobSpec, WorkerPlace
from tests.hypothesis_profile import reaches

NODES = ["node-1", "node-2", "node-3", "node-4"]


def place(rank: int, node: str, turn: int = 0) -> WorkerPlace:
    return WorkerPlace(rank=rank, node=node, devices=(0,), gpu_milli=10, turn=turn)


def job_of(workers: tuple[WorkerPlace, ...]) -> Job:
    return Job(JobSpec(id="job", tenant="acme", gang=False, workers=9), 0, "0" * 32, workers=workers)


def same_as_a_search(job: Job) -> None:
    workers, index = job.workers, index_of(job)
    ranks = range(-1, 120)
    by_rank = {place.rank: place for place in workers}
    assert [worker_of(job, rank) for rank in ranks if rank >= 0] == [by_rank.get(rank) for rank in ranks if rank >= 0]
    assert [index.find(rank) for rank in ranks] == [by_rank.get(rank) for rank in ranks]
    assert index.find_all(reversed(ranks)) == [*workers]
    assert {node: [*index.on(node)] for node in index.nodes} == {
        node: [place for place in workers if place.node == node] for node in {place.node for place in workers}
    }
    assert index.in_order(NODES) == [*dict.fromkeys(place.node for place in workers)]
    assert [*index.on("elsewhere")] == []


@given(st.data())
def test_workers_that_enter_and_leave_are_found_by_rank_and_by_node(data: st.DataObject) -> None:
    nodes = st.sampled_from(NODES)
    job = job_of(tuple(place(rank, data.draw(nodes)) for rank in range(data.draw(st.integers(0, 60)))))
    same_as_a_search(job)
    ways = set[str]()
    for turn in range(1, data.draw(st.integers(1, 8)) + 1):
        held, before = {place.rank for place in job.workers}, job.workers
        if data.draw(st.booleans()):
            free = [rank for rank in range(100) if rank not in held]
            ranks = sorted(data.draw(st.sets(st.sampled_from(free), max_size=5)) if free else ())
            job.workers = index_of(job).enter(tuple(place(rank, data.draw(nodes), turn) for rank in ranks))
            assert job.workers[: len(before)] == before
            ways.add("enter" if ranks else "")
        elif held:
            gone = data.draw(st.sets(st.sampled_from(sorted(held)), max_size=LEFT_MAX + 2))
            ways.add("leave" if gone else "")
            job.workers = index_of(job).leave(gone)
            assert job.workers == tuple(place for place in before if place.rank not in gone)
        if data.draw(st.integers(0, 3)) == 0:
            job.workers = before  # as when the change is undone
            ways.add("undone")
        same_as_a_search(job)
    reaches("workers enter a job and leave it, and some of that is undone", ways >= {"enter", "leave", "undone"})


class Counted(tuple[WorkerPlace, ...]):
    """Workers that count how often a caller goes through them."""

    __slots__ = ()
    walks = 0

    def __iter__(self) -> Iterator[WorkerPlace]:
        Counted.walks += 1
        return super().__iter__()


def test_finding_a_worker_behind_one_that_has_left_goes_not_through_all() -> None:
    job = job_of(Counted(place(rank, NODES[rank % 4]) for rank in range(1, 1_000)))
    index_of(job)
    built = Counted.walks
    assert [worker_of(job, rank) for rank in range(1, 1_000)] == [*index_of(job).find_all(range(1, 1_000))]
    assert (worker_of(job, 0), worker_of(job, 5_000), Counted.walks) == (None, None, built)
