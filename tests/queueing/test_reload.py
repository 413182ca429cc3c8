"""Queueing goes by the cell file that is in force, from the decision on that puts it there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.queueing.policy.row import Shown
from services.queueing.service import QueueingService
from shared.cluster.config import CellFile, CellPart, Pool, Queue, Tenant
from shared.cluster.file_in_force import as_effect
from shared.events.effects import CellFileSet
from shared.events.queue import QueueDiscipline, QueueOrder
from shared.events.value import replace
from tests.queueing.cell import CELL, PART, Cell, spec

QUEUES = ("default", "strict", "night", "new")


def in_force(part: CellPart) -> CellFileSet:
    """What puts a file with this cell in force."""
    effect = as_effect(CellFile(cells=(part,), tenants=(Tenant(name="ada"), Tenant(name="bob"))))
    assert effect is not None
    return effect


def with_queues(*queues: Queue) -> CellPart:
    return CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=8),), queues=queues)


def begun_anew(cell: Cell, part: CellPart = PART) -> QueueingService:
    """Another process that knows the log, and this file."""
    return QueueingService(cell.state, part, writer="queueing-2", jobs_source="jobs-0", shown=Shown(256, 256), few=-1)


def test_a_queue_that_becomes_strict_is_shown_as_such_and_windows_are_sent_at_once() -> None:
    cell = Cell()
    cell.enqueue(spec("a"), spec("b", workers=2))
    cell.heads()
    assert not cell.is_due()
    cell.decide(in_force(with_queues(Queue(name="default", discipline=QueueDiscipline.STRICT_FIFO))))
    assert cell.is_due()
    assert [head.discipline for head in cell.heads()] == [QueueDiscipline.STRICT_FIFO]


def test_jobs_that_the_log_does_not_know_yet_stand_in_the_new_lines() -> None:
    cell = Cell()
    cell.enqueue(spec("known", queue="night"))
    cell.admit(spec("early", queue="night"))
    cell.read = 0  # placement has not read that far
    cell.decide(in_force(with_queues(Queue(name="night", discipline=QueueDiscipline.STRICT_FIFO))))
    assert cell.order("night") == ["known", "early"]


def test_a_process_that_starts_goes_by_the_file_in_force_and_not_by_its_own() -> None:
    cell = Cell()
    cell.decide(in_force(with_queues(Queue(name="default", discipline=QueueDiscipline.STRICT_FIFO))))
    cell.enqueue(spec("a"))
    heads = [head for part in begun_anew(cell).window(0) for head in part.heads]
    assert [head.discipline for head in heads] == [QueueDiscipline.STRICT_FIFO]


def test_a_file_that_this_release_cannot_read_changes_nothing() -> None:
    cell = Cell()
    cell.enqueue(spec("a"))
    cell.decide(replace(in_force(PART), content="{}"))
    assert cell.order() == ["a"]


PARTS = st.lists(st.sampled_from(QUEUES), min_size=1, unique=True).flatmap(
    lambda names: st.tuples(
        *(
            st.builds(
                Queue,
                name=st.just(name),
                discipline=st.sampled_from(QueueDiscipline),
                order=st.sampled_from(QueueOrder),
            )
            for name in names
        )
    ).map(lambda queues: with_queues(*queues))
)
JOBS = st.lists(
    st.tuples(st.sampled_from((*QUEUES, "gone")), st.sampled_from(("ada", "bob")), st.integers(-1, 1), st.booleans()),
    max_size=12,
)


@given(PARTS, PARTS, JOBS)
def test_behind_a_reload_all_stands_as_in_a_process_that_begins_anew(
    first: CellPart, second: CellPart, jobs: list[tuple[str, str, int, bool]]
) -> None:
    cell = Cell()
    cell.decide(in_force(first))
    for number, (queue, tenant, priority, starts) in enumerate(jobs):
        cell.enqueue(spec(f"j{number}", queue=queue, tenant=tenant, priority=priority), submit_ms=number)
        if starts:
            cell.start(f"j{number}")
            if number % 2:
                cell.requeue(f"j{number}", not_before_ms=number)
    cell.decide(in_force(second))
    anew = begun_anew(cell)
    assert cell.heads() == [head for part in anew.window(0) for head in part.heads]
    assert cell.service.next_cell_ms() == anew.next_cell_ms()
    assert _filled(cell.service) == _filled(anew)


def _filled(service: QueueingService) -> dict[str, int]:
    return {queue: waiting for queue, waiting in service.waiting_by_queue().items() if waiting}
