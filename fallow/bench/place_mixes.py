"""The mixes of jobs, and the cells that they come to, of which each gives placement something else to do."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fallow.bench.load.networked_cell import DIGEST, LAB, Network, gang
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobSpec, Level, Resources, TopologyRequest, Wish, WorkerPlace
from fallow.shared.events.operations import Quota

LEAF, IN_LEAF = TopologyRequest(level=Level.LEAF), TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)
FITS_NOWHERE = "too-large"
"""Stands in the names of jobs that find no places in these cells."""

ROUNDS = 22
"""They use four fifths of 1,000 nodes."""

CHOOSY_ROUNDS = 14
"""They use half of 1,000 nodes."""

LEAF_ROUNDS = 30
TENANTS = 20
NODE_CPU_MILLI, NODE_MEMORY_MIB = 128_000, 1_024_000
SINGLES_WHERE_FULL = 320
"""Of the 400 GPUs that are free on 1,000 nodes."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Jobs that wait in this order, and the cell of so many nodes in which they do."""

    name: str
    specs: tuple[JobSpec, ...]
    cell: Callable[[int], CellState]

    @property
    def workers(self) -> int:
        """How many workers start: all but those of jobs that fit nowhere."""
        return sum(spec.workers for spec in self.specs if FITS_NOWHERE not in spec.id)


def mixes() -> list[Mix]:
    """All of them; the first is the friendly one."""
    rounds = [spec for number in range(ROUNDS) for spec in round_of_jobs(number)]
    return [
        Mix("friendly", tuple(rounds), _with_limits),
        Mix("shuffled", tuple(_shuffled(rounds)), _with_limits),
        Mix("labels", tuple(_with_label_rules()), _with_zones_and_taints),
        Mix("tenants", tuple(_of_tenants(rounds)), _with_guarantees),
        Mix("full", tuple(_shuffled(_where_full())), _nearly_full),
        Mix("leaf_gangs", tuple(leaf_gangs()), _with_limits),
        Mix("own_resources", tuple(_with_own_resources(rounds)), _with_processors_and_memory),
    ]


def round_of_jobs(number: int) -> list[JobSpec]:
    """184 workers: arrays of small jobs, gangs that wish for a leaf, and one that no leaf can ever hold."""
    return [
        *(gang(f"one-{number}-{at}", 1) for at in range(64)),
        gang(f"gang-{number}-64x1", 1, 64, LEAF),
        gang(f"gang-{number}-8x8", 8, 8, LEAF),
        *(gang(f"two-{number}-{at}", 2) for at in range(16)),
        gang(f"gang-{number}-32x2", 2, 32, IN_LEAF),
        gang(f"{FITS_NOWHERE}-{number}", 8, 33, IN_LEAF),
    ]


def leaf_gangs() -> Iterable[JobSpec]:
    """Gangs alone, all of which wish for a leaf: they use three quarters of 1,000 nodes."""
    for number in range(LEAF_ROUNDS):
        yield gang(f"gang-{number}-64x1", 1, 64, LEAF)
        yield gang(f"gang-{number}-8x8", 8, 8, LEAF)
        yield gang(f"gang-{number}-32x2", 2, 32, IN_LEAF)
        yield gang(f"gang-{number}-16x1", 1, 16, IN_LEAF)
        yield gang(f"{FITS_NOWHERE}-{number}", 8, 33, IN_LEAF)


def _shuffled(specs: Iterable[JobSpec]) -> list[JobSpec]:
    """These jobs in an order in which few jobs of one kind follow each other."""
    found = list(specs)
    random.Random(1).shuffle(found)  # noqa: S311 - a load, not a secret
    return found


def _with_label_rules() -> list[JobSpec]:
    rounds = (round_of_jobs(number) for number in range(CHOOSY_ROUNDS))
    return [replace(spec, node_labels=("zone!=h",)) for specs in rounds for spec in specs]


def _of_tenants(specs: list[JobSpec]) -> list[JobSpec]:
    """One after the other is of the next tenant."""
    return [replace(spec, tenant=f"tenant-{at % TENANTS:02}") for at, spec in enumerate(specs)]


def _where_full() -> Iterable[JobSpec]:
    """One GPU is free here and there: jobs of one start, those of two and gangs of nodes find nothing."""
    yield from (gang(f"one-{at}", 1) for at in range(SINGLES_WHERE_FULL))
    yield from (gang(f"{FITS_NOWHERE}-two-{at}", 2) for at in range(40))
    yield from (gang(f"{FITS_NOWHERE}-gang-{at}", 8, 8, LEAF) for at in range(10))


def _with_own_resources(specs: list[JobSpec]) -> list[JobSpec]:
    """Each job needs CPUs and memory of its own: from a fifth of a GPU's share of its node to all of it, three fifths
    in the mean.
    """
    chance = random.Random(1)  # noqa: S311 - a load, not a secret
    return [replace(spec, resources=_drawn(spec.resources, chance)) for spec in specs]


def _drawn(resources: Resources, chance: random.Random) -> Resources:
    gpus, shares = resources.gpu_milli // GPU, (0.2 + 0.8 * chance.random(), 0.2 + 0.8 * chance.random())
    return replace(
        resources,
        cpu_milli=int(shares[0] * gpus * NODE_CPU_MILLI / 8),
        memory_mib=int(shares[1] * gpus * NODE_MEMORY_MIB / 8),
    )


def _with_limits(nodes: int) -> CellState:
    return Network(nodes).cell(has_limits=True)


def _with_zones_and_taints(nodes: int) -> CellState:
    return Network(nodes, has_marks=True).cell(has_limits=True)


def _with_processors_and_memory(nodes: int) -> CellState:
    return Network(nodes, cpu_milli=NODE_CPU_MILLI, memory_mib=NODE_MEMORY_MIB).cell(has_limits=True)


def _with_guarantees(nodes: int) -> CellState:
    """Each tenant has its part of the lab guaranteed, and may borrow what the others leave idle."""
    state = Network(nodes).cell(has_limits=True)
    guaranteed_milli = nodes * 8 * GPU // TENANTS
    for number in range(TENANTS):
        quota = Quota(tenant=f"tenant-{number:02}", gpu_type="gpu", parent=LAB, guaranteed_milli=guaranteed_milli)
        apply(state, e.QuotaSet(quota=quota), 0)
    return state


def _nearly_full(nodes: int) -> CellState:
    """95 % of the GPUs are in use, and of five nodes two have one free GPU each."""
    network = Network(nodes)
    state = network.cell(has_limits=True)
    for gpus, turns in ((8, (0, 1, 2)), (7, (3, 4))):
        names = [network.node(number).id for number in range(nodes) if number % 5 in turns]
        spec, devices = gang(f"occupant-{gpus}", gpus, len(names)), tuple(range(gpus))
        places = [
            WorkerPlace(rank=at, node=name, devices=devices, gpu_milli=gpus * GPU) for at, name in enumerate(names)
        ]
        apply(state, e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST), 0)
        apply(state, e.JobStarted(job=spec.id, attempt=1, workers=tuple(places)), 0)
    return state
