"""Which processes make a cell on one machine, and what each is told: the one list for `up`, `demo` and `replay`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fallow.shared.runtime.settings import ClockKind
from fallow.shared.runtime.stack.services import ServiceSpec


@dataclass(frozen=True, slots=True)
class Clock:
    """How cell time goes in all services: `speed` cell milliseconds for each one since `origin_ms`, or stepped."""

    kind: ClockKind = ClockKind.WALL
    origin_ms: int = 0
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class ServiceKind:
    """One kind of process."""

    name: str
    module: str


KINDS: tuple[ServiceKind, ...] = (
    ServiceKind("admission", "fallow.services.admission"),
    ServiceKind("queueing", "fallow.services.queueing"),
    ServiceKind("loaning", "fallow.services.loaning"),
    ServiceKind("placement", "fallow.services.placement"),
    ServiceKind("executor", "fallow.services.executor"),
    ServiceKind("projector", "fallow.services.projector"),
    ServiceKind("metrics", "fallow.services.metrics"),
)
"""Every kind of process, in the order in which data flows through them."""


@dataclass(frozen=True, slots=True)
class ServiceSet:
    """What the supervisor is given: `Services(set.specs, environment=set.environment, run_dir=...)`."""

    specs: tuple[ServiceSpec, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def service_set(  # noqa: PLR0913 - all by name; each is a fact that some service must know
    *,
    kafka: str,
    redis: str,
    namespace: str,
    cell_file: Path,
    data_dir: Path,
    nodes_file: Path | None = None,
    clock: Clock | None = None,
    embedded: bool = False,
    replicas: Mapping[str, int] | None = None,
    more: Mapping[str, str] | None = None,
) -> ServiceSet:
    """All services of one namespace. `replicas` says how many of a kind (1 where it is silent), `more` is further
    environment.

    Raises ValueError for a kind that does not exist, a negative number, and more than one of a kind on the embedded
    broker.
    """
    wanted = dict(replicas or {})
    _check(wanted, embedded=embedded)
    time = clock or Clock()
    environment = {
        "FALLOW_KAFKA": kafka,
        "FALLOW_REDIS": redis,
        "FALLOW_NAMESPACE": namespace,
        "FALLOW_CELL_FILE": str(cell_file.resolve()),
        "FALLOW_DATA_DIR": str(data_dir.resolve()),
        "FALLOW_CLOCK": time.kind.value,
        "FALLOW_CLOCK_ORIGIN_MS": str(time.origin_ms),
        "FALLOW_CLOCK_SPEED": repr(time.speed),
        "FALLOW_EMBEDDED": "true" if embedded else "false",
        **({} if nodes_file is None else {"FALLOW_NODES_FILE": str(nodes_file.resolve())}),
        **(more or {}),
    }
    specs = tuple(spec for kind in KINDS for spec in _replicas(kind, wanted.get(kind.name, 1)))
    return ServiceSet(specs, environment)


def _replicas(kind: ServiceKind, count: int) -> list[ServiceSpec]:
    names = [kind.name] if count == 1 else [f"{kind.name}-{number}" for number in range(1, count + 1)]
    return [ServiceSpec(name, kind.module) for name in names]


def _check(replicas: Mapping[str, int], *, embedded: bool) -> None:
    known = {kind.name for kind in KINDS}
    for name, count in replicas.items():
        if name not in known:
            raise ValueError(f"replicas: {name!r} is no service; there are {', '.join(sorted(known))}")
        if count < 0 or (embedded and count > 1):
            rule = "the embedded broker carries one of each" if embedded else "must be at least 0"
            raise ValueError(f"replicas: {name} = {count}: {rule}")
