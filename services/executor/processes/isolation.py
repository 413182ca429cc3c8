"""How the workers of a machine are kept from each other and from their agent, and what of it does not hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fallow.services.executor.processes.worker_users import WorkerUsers


@dataclass(frozen=True, slots=True)
class Limits:
    """What one worker may use at most; 0: any number. `processes` counts threads too, and where workers have users
    those of all workers of an attempt here together; `log_mib` is for each of its two outputs.
    """

    open_files: int = 0
    processes: int = 0
    log_mib: int = 0


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Isolation:
    """`users` are those of the workers, None: they run as the agent's. `scoped`: the kernel keeps each from signalling
    and tracing others.
    """

    users: WorkerUsers | None = None
    scoped: bool = False
    limits: Limits = NO_LIMITS


NO_ISOLATION = Isolation()


def not_held(isolation: Isolation, *, is_root: bool, controllers: frozenset[str] | None) -> tuple[str, ...]:
    """Each guarantee that does not hold, in words for the agent's log; SECURITY.md explains them. `controllers` are
    those of the workers' control groups, None where there are no groups.
    """
    return (*_of_users(isolation, is_root=is_root), *_of_groups(controllers, has_users=isolation.users is not None))


def _of_users(isolation: Isolation, *, is_root: bool) -> Iterator[str]:
    if isolation.users is not None:
        return
    if is_root:
        yield "workers are root and may do anything on this machine"
    yield "a worker may read and write the files of other jobs and of the agent"
    if not isolation.scoped:
        yield "a worker may end, halt and trace other jobs, supervisors and the agent"


def _of_groups(controllers: frozenset[str] | None, *, has_users: bool) -> Iterator[str]:
    if controllers is None:
        yield "without control groups, what a worker leaves is found by a search"
    missing = [what for what in ("memory", "cpu") if what not in (controllers or ())]
    if missing:
        yield f"a worker may use more {' and '.join(missing)} than its job asked for"
    if not has_users and "pids" not in (controllers or ()):
        yield "a worker may begin any number of processes"
