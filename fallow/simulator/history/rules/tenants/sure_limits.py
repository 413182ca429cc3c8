"""What quotas surely allow, and what they do not keep back for sure."""

from __future__ import annotations

from fallow.shared.events.fields.values import GPU, JobSpec, NodeStatus
from fallow.simulator.history.books import Books, NodePage
from fallow.simulator.history.rules.tenants.room import is_open


def surely_allowed(books: Books, spec: JobSpec, gpu_type: str) -> bool:
    """Whether the whole job may surely be of this GPU type now. Where anything is guaranteed of it that is not said:
    which places are kept for an owner goes by where its jobs could be.
    """
    return _is_below_limits(books, spec, gpu_type) and not guaranteed_milli(books, gpu_type)


def waits_for_room(books: Books, spec: JobSpec, gpu_type: str) -> bool:
    """Whether it is surely no quota that keeps a job which does not fit."""
    if not _is_below_limits(books, spec, gpu_type):
        return False
    sure_milli, milli = guaranteed_milli(books, gpu_type), spec.gpus_milli
    if not sure_milli:
        return True
    if spec.exclusive:
        return False  # how much it takes with whole nodes goes by which these are
    # One that could never have so much beside what is guaranteed to others waits for no room.
    is_ever_allowed = milli <= open_milli(books, gpu_type) - sure_milli
    return spec.preemptible and is_ever_allowed and milli > idle_milli(books, gpu_type)


def is_owner(books: Books, spec: JobSpec) -> bool:
    """Whether anything is guaranteed to the job's tenant, or to one above it: it may pass others that would borrow."""
    above = {name: None for _, kind in books.quotas for name in books.ancestors(spec.tenant, kind)}
    return any(quota.guaranteed_milli and name in above for (name, _), quota in books.quotas.items())


def are_under_one_limit(books: Books, one: JobSpec, other: JobSpec) -> bool:
    """Whether what one of the jobs uses may be missing to the other one, on whatever nodes both are."""
    for (name, kind), quota in books.quotas.items():
        is_bounded = quota.limit_milli is not None or not quota.borrows or quota.borrow_limit_milli is not None
        if is_bounded and all(name in books.ancestors(spec.tenant, kind) for spec in (one, other)):
            return True
    return False


def are_surely_below_limits(books: Books, one: JobSpec, other: JobSpec) -> bool:
    """Whether no limit lets only one of the two jobs start, so that one of them could wait for what the other uses."""
    for (name, kind), quota in books.quotas.items():
        if not all(name in books.ancestors(spec.tenant, kind) for spec in (one, other)):
            continue
        if not quota.borrows or quota.borrow_limit_milli is not None:
            return False
        used_milli = books.used_below(name, kind) + one.gpus_milli + other.gpus_milli
        if quota.limit_milli is not None and used_milli > quota.limit_milli:
            return False
    return True


def guaranteed_milli(books: Books, gpu_type: str) -> int:
    """All that is guaranteed of a type, children beside their parents."""
    return sum(quota.guaranteed_milli for (_, kind), quota in books.quotas.items() if kind == gpu_type)


def open_milli(books: Books, gpu_type: str) -> int:
    """Healthy milli-GPUs of a type on nodes that take new work now and later."""
    return sum(_healthy_milli(each) for each in _nodes_of(books, gpu_type) if is_open(each))


def idle_milli(books: Books, gpu_type: str) -> int:
    """Healthy milli-GPUs of a type of which nothing is in use, on nodes that are not lost."""
    alive = [each for each in _nodes_of(books, gpu_type) if each.status is not NodeStatus.LOST]
    return sum(_healthy_milli(each) - _used_of_healthy_milli(each) for each in alive)


def _nodes_of(books: Books, gpu_type: str) -> list[NodePage]:
    return [each for each in books.nodes.values() if each.spec.gpu_type == gpu_type]


def _healthy_milli(node: NodePage) -> int:
    return GPU * (node.spec.gpus - len(node.failed))


def _used_of_healthy_milli(node: NodePage) -> int:
    return sum(milli for device, milli in node.held.items() if device not in node.failed)


def _is_below_limits(books: Books, spec: JobSpec, gpu_type: str) -> bool:
    for tenant in books.ancestors(spec.tenant, gpu_type):
        quota = books.quotas.get((tenant, gpu_type))
        if quota is None:
            continue
        if not quota.borrows or quota.borrow_limit_milli is not None:
            return False
        if quota.limit_milli is not None and books.used_below(tenant, gpu_type) + spec.gpus_milli > quota.limit_milli:
            return False
    return True
