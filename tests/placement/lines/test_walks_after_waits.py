"""Of jobs whose waits have ended none starts before the others, and others start in between."""

from __future__ import annotations

from fallow.services.placement.requests.walk_after_waits import PUT_OFF_MAX
from fallow.shared.cluster.model.config import Queue
from tests.placement.records.test_many_waits_end import after, cell
from tests.placement.worlds.world import World, admitted, cancel, spec_of


def with_gates(many: int) -> World:
    """Jobs with long names wait for each gate, and later for a time: each takes two effects of a record."""
    world = cell(Queue(name="line"))
    gates = [f"ada/gate{number}" for number in range(many)]
    world.tell(*(admitted(spec_of(gate, 1, hold=True)) for gate in gates))
    for gate in gates:
        waits = [spec_of(f"{gate}{n}{'x' * 90}", 1, array=900, not_before_ms=10**9, after=after(gate)) for n in (1, 2)]
        world.tell(*map(admitted, waits))
    return world


def test_between_records_that_waits_fill_one_is_made_that_starts_all_for_which_there_is_room() -> None:
    world = with_gates(PUT_OFF_MAX + 4)
    world.hand_over(cancel("ada/gate0"))
    world.decide()
    world.hand_over(*(admitted(spec_of(f"bob/mine{n}", 1, tenant="bob", priority=9)) for n in range(4)))
    for number in range(1, PUT_OFF_MAX + 4):
        world.hand_over(cancel(f"ada/gate{number}"))
        world.decide()
        assert world.state.has_waits_to_settle
    assert all(world.job(f"bob/mine{number}").workers for number in range(4))


def test_nobody_starts_before_all_are_told_that_wait_for_a_job_that_is_another_tenants() -> None:
    """They named it before it was known whose it is. The end of the last of them is what the first in order waits for;
    of none of the others' ends any job is to be told.
    """
    world = cell(Queue(name="line"))
    world.tell(*(admitted(spec_of(f"bob/m{n}", 1, tenant="bob", array=900, after=after("ada/gate"))) for n in range(3)))
    world.tell(admitted(spec_of("bob/first", 8, tenant="bob", priority=50, after=after("bob/m2"))))
    world.tell(admitted(spec_of("ada/gate", 1, hold=True)), admitted(spec_of("bob/next", 8, tenant="bob")))
    assert [job.id for job in world.state.jobs.values() if job.workers] == ["bob/first"]
