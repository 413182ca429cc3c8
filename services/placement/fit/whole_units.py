"""The fewest GPUs for an exclusive job that requires a place in the network: all workers in one unit of a level, or
each slice of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fallow.services.placement.fit.empty_capacity import workers_on
from fallow.services.placement.fit.fewest_gpus import Offer, cheapest
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.hardware import Hardware, UnitsAlike, hardware_of
from fallow.shared.cluster.capacity.masks import each_bit
from fallow.shared.cluster.model.node import lowest_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec, Level, Wish

KEPT_MAX = 200
"""So many choices at most are gone on with from one unit to the next: those with the fewest GPUs for each worker."""


class Part(NamedTuple):
    """So many workers in one unit, on these nodes: a mask over the pool's numbers."""

    workers: int
    nodes: int


class Choice(NamedTuple):
    """The nodes for a job unit by unit, the smaller last slice in the last one, and how many GPUs these have."""

    gpus: int
    parts: tuple[Part, ...]


Unit = list[Offer]


def is_in_units(spec: JobSpec) -> bool:
    """Whether the job, or each slice of it, must be in one unit of the network."""
    return spec.topology is not None and spec.topology.wish is Wish.REQUIRED


def fewest_in_units(pool: PoolCapacity, hardware: Hardware, spec: JobSpec, among: int) -> Choice | None:
    """The nodes of these with the fewest GPUs that hold the job as it requires when they are empty; None where they do
    not.
    """
    assert spec.topology is not None, "it requires a place"
    slice_ = min(spec.topology.slice_workers or spec.workers, spec.workers)
    whole, rest = divmod(spec.workers, slice_)
    alike = hardware.in_units(spec.topology.level, among & ~hardware.closed)
    slices = _Slices(slice_, whole, rest)
    found = slices.choose(_of_each_kind(_units(hardware, spec, alike), most=whole + bool(rest)))
    pool.effort.looks += slices.steps
    return found


def gpus_in_units(state: CellState, pool: PoolCapacity, spec: JobSpec, among: int) -> int:
    """How many GPUs the job takes so at the least, 0 where these nodes do not hold it. It is remembered until a node
    becomes another one.
    """
    hardware = hardware_of(state, pool)
    name = ("whole units", spec.topology, spec.workers, spec.resources, spec.gpu_type, among)
    known = hardware.remembered.get(name)
    if not isinstance(known, int):
        found = fewest_in_units(pool, hardware, spec, among)
        known = 0 if found is None else found.gpus
        hardware.remember(name, known)
    return known


def offers_of(hardware: Hardware, spec: JobSpec, among: int) -> list[Offer]:
    """Those of these nodes that no person has closed and that hold a worker of the job when they are empty."""
    among &= ~hardware.closed
    found = [
        Offer(kind.gpus, workers_on(kind, spec.resources, spec.gpu_type), nodes & among)
        for kind, nodes in hardware.kinds.items()
    ]
    return [offer for offer in found if offer.workers and offer.nodes]


def _units(hardware: Hardware, spec: JobSpec, alike: Sequence[UnitsAlike]) -> Iterator[Unit]:
    """What each unit offers. Of nodes that are units of their own, those that are alike are one entry each."""
    assert spec.topology is not None, "it requires a place"
    for each in alike:
        nodes = each.nodes << each.first
        if spec.topology.level is not Level.NODE:
            yield offers_of(hardware, spec, nodes)
            continue
        for number in each_bit(lowest_of(nodes, spec.workers)):
            yield offers_of(hardware, spec, 1 << number)


def _of_each_kind(units: Iterator[Unit], most: int) -> list[Unit]:
    """So many of the units that offer the same, at most: more cannot be of use."""
    found, many = list[Unit](), Counter[tuple[tuple[int, int, int], ...]]()
    for unit in units:
        kind = _kind_of(unit)
        many[kind] += 1
        if unit and many[kind] <= most:
            found.append(unit)
    return found


def _kind_of(unit: Unit) -> tuple[tuple[int, int, int], ...]:
    return tuple(sorted((offer.gpus, offer.workers, offer.nodes.bit_count()) for offer in unit))


class _Link(NamedTuple):
    """One unit more beside those before it."""

    part: Part
    before: _Link | None


class _Chosen(NamedTuple):
    """Units that were chosen so far, with these GPUs; and the one with the smaller slice, the last."""

    gpus: int
    units: _Link | None
    last: Part | None

    def with_part(self, part: Part, gpus: int, *, is_last: bool) -> _Chosen:
        """This choice with one unit more."""
        if is_last:
            return _Chosen(self.gpus + gpus, self.units, part)
        return _Chosen(self.gpus + gpus, _Link(part, self.units), self.last)

    def choice(self) -> Choice:
        """All of these units in their order."""
        parts, link = list[Part](), self.units
        while link is not None:
            parts.append(link.part)
            link = link.before
        parts.reverse()
        return Choice(self.gpus, tuple(parts if self.last is None else [*parts, self.last]))


class _Slices:
    """The choice of units for so many `whole` slices, and for a smaller one if there is a `rest` of workers."""

    def __init__(self, slice_: int, whole: int, rest: int) -> None:
        self._slice, self._whole, self._rest = slice_, whole, rest
        self.steps = 0

    def choose(self, units: Sequence[Unit]) -> Choice | None:
        """The best choice; None where these units do not hold all slices. What is best with so many whole slices, with
        the smaller one or without it, is found unit by unit.
        """
        best = {(0, not self._rest): _Chosen(0, None, None)}
        for unit in units:
            options = list(self._options(unit))
            self.steps += len(best) * len(options)
            for (whole, has_rest), chosen in list(best.items()):
                for more, takes_rest, gpus, part in options:
                    name = (whole + more, has_rest or takes_rest)
                    if name[0] > self._whole or (has_rest and takes_rest):
                        continue
                    if name not in best or chosen.gpus + gpus < best[name].gpus:
                        best[name] = chosen.with_part(part, gpus, is_last=takes_rest)
            if len(best) > KEPT_MAX:
                names = sorted(best, key=lambda name: self._price(name, best[name]))
                best = {name: best[name] for name in names[:KEPT_MAX]}
        found = best.get((self._whole, True))
        return None if found is None else found.choice()

    def _price(self, name: tuple[int, bool], chosen: _Chosen) -> tuple[int, int]:
        """Order of choices: by GPUs for each million workers, then those of more workers first."""
        workers = name[0] * self._slice + (self._rest if name[1] else 0)
        return (chosen.gpus * 1_000_000 // workers if workers else 0, -workers)

    def _options(self, unit: Unit) -> Iterator[tuple[int, bool, int, Part]]:
        """How many whole slices the unit may have, and whether the smaller one too, with the GPUs of the nodes."""
        room = sum(offer.workers * offer.nodes.bit_count() for offer in unit)
        for whole in range(min(room // self._slice, self._whole) + 1):
            for takes_rest in (False, True) if self._rest else (False,):
                workers = whole * self._slice + (self._rest if takes_rest else 0)
                chosen = cheapest(unit, workers) if 0 < workers <= room else []
                if chosen:
                    nodes = 0
                    for offer, many in chosen:
                        nodes |= lowest_of(offer.nodes, many)
                    yield whole, takes_rest, sum(offer.gpus * many for offer, many in chosen), Part(workers, nodes)
