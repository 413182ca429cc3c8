"""A benchmark of a plain cell, which lets everybody in, beside a secured one: in turn, on one machine, in one run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from math import inf
from statistics import median

from rich.console import Console

from fallow.bench.figure import Figure
from fallow.cli.errors.failures import refuse
from fallow.shared.runtime.addresses import without_password
from fallow.shared.runtime.stack.server import Source
from fallow.shared.runtime.stack.valkey import Program, program_on_path

ROUNDS = 3
STARTED = {"FALLOW_KAFKA": (Source.JARS,), "FALLOW_REDIS": (Source.PATH, Source.WHEEL)}
"""What these variables may name: servers that are started here, so that both cells have equal ones."""

FOREIGN = ("FALLOW_KAFKA_", "FALLOW_SECRETS_DIR", "FALLOW_SIGNING_KEY")
"""How variables begin by which one comes in at servers of another cell."""

Measure = Callable[[bool], Figure]
"""One round: of the secured cell if so, else of the plain one."""


def beside_secured(console: Console, measure: Measure, keys: Sequence[str], rounds: int) -> Figure:
    """Measure both cells so often, in turn, and compare these keys. The figure is that of the plain cell's middle round
    by the first of the keys that it has, with the secured one's beside it.
    """
    use_equal_servers()
    figures: dict[bool, list[Figure]] = {False: [], True: []}
    for number, secured in enumerate(order_of(rounds), start=1):
        name = "secured" if secured else "plain"
        console.print(f"round {number} of {2 * rounds}, {name}", highlight=False)
        figures[secured].append(measure(secured))
    return compared(figures[False], figures[True], keys)


def use_equal_servers() -> None:
    """From now on this process starts its Kafka and its Redis from the same programs, secured or not, and hands on no
    secrets of another cell. Ends the command where servers that run are named.
    """
    for variable, sources in STARTED.items():
        given = os.environ.get(variable, "").strip()
        if given and given not in sources:
            starts = "is no server for --secured, which starts its own, plain and secured: unset it"
            refuse(variable, without_password(given), starts)
    for variable in [name for name in os.environ if name.startswith(FOREIGN)]:
        del os.environ[variable]
    redis = Source.PATH if isinstance(program_on_path(), Program) else Source.WHEEL
    os.environ["FALLOW_KAFKA"] = Source.JARS.value
    os.environ["FALLOW_REDIS"] = os.environ.get("FALLOW_REDIS", "").strip() or redis.value


def order_of(rounds: int) -> list[bool]:
    """Whether each measurement is of the secured cell. No cell comes always first, so that a machine that grows slower
    favours none.
    """
    return [secured for number in range(rounds) for secured in ((False, True) if number % 2 == 0 else (True, False))]


def compared(plain: Sequence[Figure], secured: Sequence[Figure], keys: Sequence[str]) -> Figure:
    """Both as one figure. It is busy if any round was."""
    own, other = _middle(plain, keys), _middle(secured, keys)
    found = {key: _compared(plain, secured, key) for key in keys if _is_told(own, key) or _is_told(other, key)}
    rounds = [
        _round(figure, found, secured=is_it) for is_it, some in ((False, plain), (True, secured)) for figure in some
    ]
    worst = max((*plain, *secured), key=lambda figure: figure.used.others_cores)
    lines = ["plain:", *own.lines, f"secured ({_secured_by(other.body)}):", *other.lines]
    lines += [
        f"{key}: plain {row['plain']}, secured {row['secured']}, ratio {row['ratio']}" for key, row in found.items()
    ]
    lines.append(f"medians of {len(plain)} rounds of each cell, in turn; above them each cell's middle round")
    body = {**own.body, "secured": other.body, "compared": found, "rounds": rounds}
    durable = None if own.durable is None else all(figure.durable for figure in (*plain, *secured))
    return Figure(own.name, lines, body, worst.used, durable)


def value_of(body: Mapping[str, object], key: str) -> float | None:
    """The number of a key, of an object by process their sum; None where it is not told, or without bound."""
    value = body.get(key)
    if isinstance(value, Mapping):
        value = sum(value.values())
    return float(value) if isinstance(value, int | float) else None


def _compared(plain: Sequence[Figure], secured: Sequence[Figure], key: str) -> dict[str, float | None]:
    before, behind = _median(plain, key), _median(secured, key)
    ratio = None if not before or behind is None else round(behind / before, 3)
    return {"plain": before, "secured": behind, "ratio": ratio}


def _median(figures: Sequence[Figure], key: str) -> float | None:
    """A round in which it is without bound is above all others."""
    values = [value_of(figure.body, key) for figure in figures]
    found = median(inf if value is None else value for value in values)
    return None if found == inf else round(found, 3)


def _middle(figures: Sequence[Figure], keys: Sequence[str]) -> Figure:
    key = next((key for key in keys if any(_is_told(figure, key) for figure in figures)), keys[0])
    ordered = sorted(figures, key=lambda figure: inf if (value := value_of(figure.body, key)) is None else value)
    return ordered[(len(ordered) - 1) // 2]


def _is_told(figure: Figure, key: str) -> bool:
    return value_of(figure.body, key) is not None


def _round(figure: Figure, keys: Mapping[str, object], *, secured: bool) -> dict[str, object]:
    values = {key: value_of(figure.body, key) for key in keys}
    return {"secured": secured, **values, "others_cpu": figure.used.others_cores, "busy": figure.used.is_busy}


def _secured_by(body: Mapping[str, object]) -> str:
    security = body["security"]
    assert isinstance(security, Mapping)
    redis = "TLS and users" if security["redis_tls"] else "users, without TLS, which this server does not have"
    signed = "signed" if body["signed"] else "not signed"
    return f"Kafka: {security['kafka']} by {security['mechanism']} and rights; Redis: {redis}; decisions {signed}"
