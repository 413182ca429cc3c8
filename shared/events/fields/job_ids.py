"""The two names of a job: the id that its tenant chose, and `TENANT/ID`, by which the cell knows it. So an id belongs
to its tenant: whatever others call their jobs, it is free.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import get_args

from fallow.shared.events.base import Name
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import Dependency, JobSpec

_NAME = re.compile(get_args(Name)[1].pattern[1:-1])


def full_id(tenant: str, job: str) -> str:
    """`TENANT/ID` of a job that one of this tenant calls so: by its id alone, or by its full id, whosever it is. By the
    id alone it stays where `tenant` is no name, so that no tenant's job can be meant.
    """
    return job if "/" in job or not is_name(tenant) else f"{tenant}/{job}"


@lru_cache(maxsize=1_024)
def is_name(name: str) -> bool:
    """Whether a tenant or a queue may be called so: asked for each job, and most of them have many."""
    return _NAME.fullmatch(name) is not None


def parted(job: str) -> tuple[str, str]:
    """The tenant, "" where the id stands alone, and the id."""
    tenant, _, own = job.rpartition("/")
    return tenant, own


def own_id(job: str) -> str:
    """The id that the tenant chose."""
    return parted(job)[1]


def in_full(spec: JobSpec) -> tuple[str, tuple[Dependency, ...]]:
    """The id of the job, and what it waits for, with all jobs in full."""
    tenant, after = spec.tenant, spec.after
    if after:
        after = tuple(replace(each, job=full_id(tenant, each.job)) for each in after)
    return full_id(tenant, spec.id), after


def in_short(spec: JobSpec) -> JobSpec:
    """This job as its tenant names it and the jobs that it waits for. Another tenant's jobs stay named in full."""
    if not spec.after and "/" not in spec.id:
        return spec
    start = f"{spec.tenant}/"
    after = tuple(replace(each, job=each.job.removeprefix(start)) for each in spec.after)
    if spec.id.startswith(start) or after != spec.after:
        return replace(spec, id=spec.id.removeprefix(start), after=after)
    return spec


def digest_of(spec: JobSpec) -> str:
    """The job's content as submitted, with its tenant's own ids: 16 bytes of BLAKE2b over its encoding."""
    return blake2b(encode(in_short(spec)), digest_size=16).hexdigest()


def as_file_name(job: str) -> str:
    """`TENANT~ID`, by which the job's files stand in one folder: no tenant's name and no id has this sign."""
    return job.replace("/", "~", 1)
