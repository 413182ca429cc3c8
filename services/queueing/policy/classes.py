"""Equivalence classes: jobs that fit or do not fit alike, in the same state."""

from __future__ import annotations

from shared.events.values import JobSpec

ClassKey = tuple[object, ...]


def class_of(spec: JobSpec) -> ClassKey:
    """Tenant (its quota), shape, constraints and priority. A window shows only the first few jobs of a class."""
    wants = spec.resources
    return (
        spec.tenant,
        spec.kind,
        spec.priority,
        spec.pools,
        spec.gpu_type,
        spec.workers,
        spec.workers_min,
        wants.gpu_milli,
        wants.cpu_milli,
        wants.memory_mib,
        spec.topology,
        spec.spread,
        spec.node_labels,
        spec.tolerations,
        spec.exclusive,
        spec.preemptible,
        spec.gang,
    )
