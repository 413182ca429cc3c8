"""A scheme: in which order jobs start, whether servers are lent to them, which go back, and who grows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from fallow.bench.aryl.world.run import Run, Where
from fallow.services.loaning.policy.reclaim.spread import LentServer

if TYPE_CHECKING:
    from fallow.bench.aryl.world.world import World


class Information(StrEnum):
    """What a scheme knows of run times."""

    NONE = "none"
    ORACLE = "oracle"


class Order(ABC):
    """Keeps the jobs that wait, and starts them."""

    @abstractmethod
    def add(self, run: Run) -> None:
        """It waits from now on."""

    @abstractmethod
    def start(self, world: World) -> None:
        """Start what may start now."""

    @abstractmethod
    def is_waiting(self) -> bool:
        """Whether a job waits."""


class Elastic(NamedTuple):
    """A running job that may grow: what a flexible worker takes of the room that is shared out, what work is left."""

    run: Run
    gpus_each: int
    base_ms_left: int


Scaling = Callable[[Sequence[Elastic], int], Sequence[int]]
"""How many flexible workers each gets, of so many GPUs, which do not suffice for the most of all."""

Reclaim = Callable[[Sequence[LentServer], int, Random], Sequence[str]]
"""The jobs to preempt so that so many of these servers, which all hold base workers, become empty."""

Sides = Callable[[Run], tuple[Where, ...]]
"""Where a job may start, the preferred side first."""


def preferred_sides(run: Run) -> tuple[Where, ...]:
    """Lyra's choice (section 5.3): elastic jobs prefer lent servers, where they can give way."""
    job = run.job
    if job.is_fungible:
        return (Where.LENT, Where.TRAINING) if job.is_elastic else (Where.TRAINING, Where.LENT)
    return (Where.TRAINING, Where.BOTH) if job.is_heterogeneous else (Where.TRAINING,)


@dataclass(frozen=True, slots=True)
class Scheme:
    """What a policy file names. `scenarios`: those in which it is compared; all where none are named."""

    name: str
    information: Information
    order: Callable[[], Order]
    lends: bool = False
    reclaim: Reclaim | None = None
    scaling: Scaling | None = None
    sides: Sides = preferred_sides
    scenarios: tuple[str, ...] = ()
    grows_while_others_wait: bool = True
    is_pooled_only: bool = False
    restart_ms: int = 63_000
    """The overhead of a preemption in the paper's simulation (section 7.1)."""
