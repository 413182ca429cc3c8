"""Worlds with a network in which jobs wish for a place, with jobs that need one type of GPU, and with jobs that may not
be preempted.

Whatever is asked for can be had: a job whose wish no empty cell could grant would wait for ever.
"""

from __future__ import annotations

from fallow.shared.events.base import replace
from fallow.shared.events.fields.values import GPU, JobKind, JobSpec, Level, NodeSpec, Position, TopologyRequest, Wish
from fallow.shared.events.submissions import SubmitJob
from fallow.simulator.draws.choosy import suits
from fallow.simulator.engine import Engine


def wired(engine: Engine, specs: tuple[NodeSpec, ...]) -> tuple[NodeSpec, ...]:
    """In some worlds the nodes stand in a whole network, in which now and then a place is not known."""
    if engine.between(0, 1):
        return specs
    return tuple(replace(spec, position=_place(engine, number)) for number, spec in enumerate(specs))


def _place(engine: Engine, number: int) -> Position:
    names = {"domain": f"domain-{number // 2}", "leaf": f"leaf-{number // 4}", "spine": f"spine-{number // 6}"}
    known = {level: name for level, name in names.items() if engine.between(0, 9)}
    return Position(**known, superspine="superspine")


def wishful(engine: Engine, submit: SubmitJob, specs: tuple[NodeSpec, ...]) -> SubmitJob:
    """The job with a wish for its place, as far as these nodes could grant it; and some are not preemptible."""
    job = replace(submit.job, preemptible=engine.between(0, 5) > 0)
    if job.gang and job.kind is JobKind.TRAINING and engine.between(0, 1):
        slices = [size for size in range(1, job.workers + 1) if job.workers % size == 0]
        wish = TopologyRequest(
            level=engine.chance.choice(tuple(Level)),
            wish=engine.chance.choice(tuple(Wish)),
            slice_workers=engine.chance.choice((None, engine.chance.choice(slices))),
        )
        wished = replace(job, topology=wish)
        job = wished if wish.wish is Wish.PREFERRED or grants(specs, wished) else job
    return replace(submit, job=job)


def typed(engine: Engine, submit: SubmitJob, specs: tuple[NodeSpec, ...]) -> SubmitJob:
    """The job with a type of GPU that the pools that it names have."""
    job = submit.job
    types = tuple(dict.fromkeys(spec.gpu_type for spec in specs if not job.pools or spec.pool in job.pools))
    return replace(submit, job=replace(job, gpu_type=engine.chance.choice(types))) if engine.between(0, 1) else submit


def grants(specs: tuple[NodeSpec, ...], job: JobSpec) -> bool:
    """Whether one of the job's pools, were it empty, grants a required wish."""
    assert job.topology is not None, "asked of jobs with a wish"
    size = job.topology.slice_workers or job.workers
    for pool in dict.fromkeys(spec.pool for spec in specs if not job.pools or spec.pool in job.pools):
        room: dict[tuple[str | None, ...], int] = {}
        for spec in specs:
            unit = _unit(spec, job.topology.level)
            if spec.pool == pool and unit[0] is not None and suits(spec, job):
                room[unit] = room.get(unit, 0) + workers_on(spec, job)
        if sum(workers // size for workers in room.values()) * size >= job.workers:
            return True
    return False


def _unit(spec: NodeSpec, level: Level) -> tuple[str | None, ...]:
    """The unit around a node, first, and those around that one: a name may stand twice, in different places."""
    at = spec.position
    names = (spec.id, at.domain, at.leaf, at.spine, at.superspine)
    return names[tuple(Level).index(level) :]


def workers_on(spec: NodeSpec, job: JobSpec) -> int:
    """How many of the job's workers an empty node holds."""
    milli = job.resources.gpu_milli
    return spec.gpus * (GPU // milli) if milli < GPU else spec.gpus * GPU // milli
