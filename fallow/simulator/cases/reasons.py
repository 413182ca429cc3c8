"""How the cases call the reasons for which a job waits, and how the product does: the one table between them.

A job that admission turns away because it can never run counts as one that waits, with admission's reason: it holds
nothing and never starts, and its submitter is told the numbers at once.
"""

from __future__ import annotations

from fallow.services.placement.explain.capacity import PoolRoom
from fallow.services.placement.explain.explain import WhyNot
from fallow.shared.events.fields.values import GPU, JobSpec
from fallow.shared.events.jobs import JobRejected

CODES: dict[str, tuple[str, ...]] = {
    "quota": ("quota_reached", "over_tenant_limit"),
    "exceeds_max_quota": ("larger_than_pool", "over_tenant_limit", "over_job_limit"),
    "fragmentation": ("fragmented",),
    "would_delay_reserved": ("reserved_for_other", "behind_head"),
    "preemption_delay": ("preemption_delay",),
}
"""The case's word, and the codes that mean it."""

CAN_NEVER_RUN = ("larger_than_pool", "over_tenant_limit", "over_job_limit")
"""With these codes a submission was refused for good, by what it asks for."""


def in_words(refused: JobRejected) -> str:
    """Why admission turned a job away, with its numbers."""
    told = f"{refused.field} {refused.value}: {refused.rule}"
    if refused.field == "workers" and refused.allowed is not None:
        told += f"; can place {refused.allowed} of {refused.wanted}"
    return told


def waits_in_words(why: WhyNot, spec: JobSpec) -> str:
    """Why a job waits, with the numbers of each of its pools."""
    told = [code.value for code in why.codes or (why.recorded,) if code is not None]
    for room in why.pools:
        free, wanted = room.gpus_free_milli // GPU, spec.gpus_milli // GPU
        short = f", {wanted - free} short" if free < wanted else ""
        told.append(f"{free} of {wanted} GPUs are free{short}; can place {_fitting(room, spec)}")
        told += [f"{gpus} more are idle on nodes {why}" for why, gpus in room.closed_gpus]
    return "; ".join(told)


def _fitting(room: PoolRoom, spec: JobSpec) -> str:
    """`3 of 4 in rack a, 2 of 4 in rack b`."""
    found = room.fitting(spec)
    return ", ".join(f"{workers} of {spec.workers}{f' in {unit}' if unit else ''}" for workers, unit in found)


def means(word: str, code: str) -> bool:
    """Whether the product's code is what the case calls so."""
    return code in CODES.get(word, (word,))
