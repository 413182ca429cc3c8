"""Equal parts of many specifications are kept once: jobs of one kind come by the thousand."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from msgspec.structs import force_setattr

from fallow.shared.events.fields.values import JobSpec

KINDS_MAX = 4096
"""Kinds of jobs that are known at a time. Beyond it the table is begun anew: nothing but memory depends on it."""

_parts_of = attrgetter("tenant", "queue", "cell", "gpu_type", "pools", "resources")

Kinds = dict[tuple[Any, ...], tuple[Any, ...]]
"""The parts that jobs of one kind have in common."""


def share(kinds: Kinds, spec: JobSpec) -> None:
    """Give a specification that came in the parts of an equal kind that is known already. It stays the same value."""
    parts = _parts_of(spec)
    known = kinds.get(parts)
    if known is None:
        if len(kinds) >= KINDS_MAX:
            kinds.clear()
        kinds[parts] = parts
        return
    tenant, queue, cell, gpu_type, pools, resources = known
    force_setattr(spec, "tenant", tenant)
    force_setattr(spec, "queue", queue)
    force_setattr(spec, "cell", cell)
    force_setattr(spec, "gpu_type", gpu_type)
    force_setattr(spec, "pools", pools)
    force_setattr(spec, "resources", resources)
