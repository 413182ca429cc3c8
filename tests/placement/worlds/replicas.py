"""Short ways to tell of single workers of jobs that are no gangs."""

from __future__ import annotations

from typing import Any

from fallow.shared.events import nodes as n
from fallow.shared.events.fields.values import JobKind, JobSpec
from tests.placement.worlds.world import CELL, World, spec_of


def service(job: str, workers: int, gpus: int = 1, **more: Any) -> JobSpec:
    """An inference service as admission passes it on."""
    return spec_of(job, gpus=gpus, workers=workers, **{"kind": JobKind.INFERENCE, "gang": False, **more})


def loose(job: str, workers: int, gpus: int = 1, **more: Any) -> JobSpec:
    """A training job that is no gang."""
    return spec_of(job, gpus=gpus, workers=workers, **{"gang": False, **more})


def word(cls: type[n.RunEvent], world: World, job: str, rank: int, **more: Any) -> n.RunEvent:
    """What its node says of a worker that the job has."""
    place = next(place for place in world.job(job).workers if place.rank == rank)
    return cls(
        cell=CELL,
        node=place.node,
        boot=world.state.nodes[place.node].boot,
        seq=1,
        job=job,
        attempt=world.job(job).attempt,
        rank=rank,
        turn=place.turn,
        **more,
    )


def all_start(world: World, job: str) -> None:
    """Every worker that is on its way has started."""
    starting = [int(rank) for rank, status in world.job(job).runs.items() if status == "starting"]
    world.tell(*(word(n.RunStarted, world, job, rank) for rank in starting))


def leave(world: World, job: str) -> None:
    """Every worker that was told to leave has left."""
    world.tell(*(word(n.RunStopped, world, job, rank) for rank in world.job(job).leaving))


def ranks(world: World, job: str) -> list[int]:
    """The ranks that hold a place."""
    return sorted(place.rank for place in world.job(job).workers)


def on_nodes(world: World, job: str) -> list[str]:
    """The nodes on which its workers are, one entry for each."""
    return sorted(place.node for place in world.job(job).workers)
