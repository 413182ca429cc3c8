"""Worlds in which nodes are not alike for every job: labels, taints, and jobs that will have no others beside them.

Whatever is asked for can be had: a job whose nodes could never hold it would wait for ever.
"""

from __future__ import annotations

from fallow.shared.events.base import replace
from fallow.shared.events.fields.values import GPU, JobSpec, NodeSpec
from fallow.shared.events.submissions import SubmitJob
from fallow.simulator.engine import Engine

ZONE, HOT = "zone", "hot"
RULES = ("zone=a", "zone=a|b", "zone!=a", "zone", "!zone")


def marked(engine: Engine, specs: tuple[NodeSpec, ...]) -> tuple[NodeSpec, ...]:
    """In some worlds the nodes are in zones, and some of them have a taint."""
    if engine.between(0, 1):
        return specs
    return tuple(
        replace(
            spec,
            labels={ZONE: zone} if (zone := engine.chance.choice(("a", "b", ""))) else {},
            taints=(HOT,) if engine.between(0, 3) == 0 else (),
        )
        for spec in specs
    )


def choosy(engine: Engine, submit: SubmitJob, specs: tuple[NodeSpec, ...]) -> SubmitJob:
    """The job with wishes for its nodes, as far as these could hold it."""
    job = submit.job
    rules = (engine.chance.choice(RULES),) if engine.between(0, 2) == 0 else ()
    tolerations = (HOT,) if engine.between(0, 2) == 0 else ()
    wished = replace(job, node_labels=rules, tolerations=tolerations, exclusive=engine.between(0, 4) == 0)
    modest = replace(wished, node_labels=(), tolerations=(HOT,))
    return replace(submit, job=wished if can_hold(specs, wished) else modest)


def can_hold(specs: tuple[NodeSpec, ...], job: JobSpec) -> bool:
    """Whether one of the job's pools has nodes for all of its workers."""
    room: dict[str, int] = {}
    for spec in specs:
        if (not job.pools or spec.pool in job.pools) and suits(spec, job):
            milli = job.resources.gpu_milli
            workers = spec.gpus * (GPU // milli) if milli < GPU else spec.gpus * GPU // milli
            room[spec.pool] = room.get(spec.pool, 0) + workers
    return any(workers >= job.workers for workers in room.values())


def suits(spec: NodeSpec, job: JobSpec) -> bool:
    """Whether the node is what the job asks for, whatever room it has."""
    if job.gpu_type not in (None, spec.gpu_type):
        return False
    zone = spec.labels.get(ZONE)
    keeps = {
        "zone=a": zone == "a",
        "zone=a|b": zone in ("a", "b"),
        "zone!=a": zone != "a",
        "zone": zone is not None,
        "!zone": zone is None,
    }
    return (not spec.taints or HOT in job.tolerations) and all(keeps[rule] for rule in job.node_labels)
