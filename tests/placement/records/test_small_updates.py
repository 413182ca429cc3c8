"""An update is a few bytes in the log, however large the job is that it changes."""

from __future__ import annotations

from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.values import ProcessRun
from tests.placement.worlds.world import World, admitted, joined, spec_of, update


def test_updates_of_a_large_job_take_no_more_of_the_log_than_those_of_a_small_one() -> None:
    world, sizes = World(), dict[str, int]()
    world.tell(joined("n1"))
    env = {f"NAME_{number}": "x" * 1_000 for number in range(200)}
    for name, more in (("small", {}), ("large", env)):
        world.tell(admitted(spec_of(name, run=ProcessRun(argv=("train",), env=more), hold=True)))
    for name in ("small", "large"):
        before = len(world.log)
        world.tell(*(update(name, priority=number) for number in range(1, 21)))
        sizes[name] = sum(len(record.value) for record in world.log[before:])
    assert len(encode(ProcessRun(argv=("train",), env=env))) > 200_000
    assert sizes["large"] < 1.1 * sizes["small"]
