"""The worlds in which nodes are not alike: they are drawn, and nothing in them waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from fallow.shared.events.fields.values import JobSpec, NodeSpec, Resources
from fallow.shared.events.submissions import SubmitJob
from fallow.simulator.draws.choosy import choosy, marked
from fallow.simulator.engine import Engine

SPECS = tuple(NodeSpec(id=f"n{number}", pool="train", gpus=2) for number in range(4))


def drawn(seed: int) -> tuple[tuple[NodeSpec, ...], JobSpec]:
    """The nodes of a world, and one of its jobs."""
    engine = Engine(Random(seed))
    specs = marked(engine, SPECS)
    job = JobSpec(id="job", tenant="ada", workers=3, resources=Resources(gpu_milli=1_000))
    return specs, choosy(engine, SubmitJob(job=job), specs).job


WORLDS = [drawn(seed) for seed in range(60)]


def test_every_constraint_is_drawn() -> None:
    assert any(spec.taints for specs, _ in WORLDS for spec in specs)
    assert any(spec.labels for specs, _ in WORLDS for spec in specs)
    assert any(not spec.labels and not spec.taints for specs, _ in WORLDS for spec in specs)
    assert {job.exclusive for _, job in WORLDS} == {False, True}
    assert any(job.node_labels for _, job in WORLDS)


@pytest.mark.parametrize("seed", range(60))
def test_a_job_could_run_if_all_were_empty(seed: int) -> None:
    specs, job = WORLDS[seed]
    rules: dict[str, Callable[[str | None], bool]] = {
        "zone=a": lambda zone: zone == "a",
        "zone=a|b": lambda zone: zone in ("a", "b"),
        "zone!=a": lambda zone: zone != "a",
        "zone": lambda zone: zone is not None,
        "!zone": lambda zone: zone is None,
    }
    may = [
        spec
        for spec in specs
        if set(spec.taints) <= set(job.tolerations)
        and all(rules[rule](spec.labels.get("zone")) for rule in job.node_labels)
    ]
    assert sum(spec.gpus for spec in may) >= job.workers
