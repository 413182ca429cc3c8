"""Writes one full record of each type that has none yet, and adds the effects that the golden decision has not in full:
`python -m tests.events.write_golden`.

What is there is never written again: it is what an old log holds, and every later release of its version must go on
reading it.
"""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge
from pydantic import StringConstraints

from fallow.shared.events import TYPES, Decision, Event, encode
from fallow.shared.events.base import JobId, Value
from tests.strategies import EFFECTS, MENDED, bound, flat, unchanged

GOLDEN = Path(__file__).parent / "golden"

FULL = get_args(JobId)[1]
"""The rule for names of jobs: in the log they stand in full."""


def example(cls: type[Value]) -> Any:
    """A value with every field set."""
    if cls is Decision:
        effects = tuple(example(effect) for effect in EFFECTS)
        return Decision(cell="cell-a", version=7, epoch=2, inputs={"jobs-0": 12}, at_ms=1_000, effects=effects)
    hints = get_type_hints(cls, include_extras=True)
    fields = {name: of_type(hints[name], name) for name in cls.__struct_fields__}
    return cls(**MENDED.get(cls, unchanged)(fields))


def of_type(hint: Any, name: str, rules: tuple[Any, ...] = ()) -> Any:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return of_type(parts[0], name, rules + tuple(flat(parts[1:])))
    if origin in (Union, UnionType):
        return of_type(next(part for part in parts if part is not NoneType), name, rules)
    if origin is Literal:
        return parts[0]
    if origin is tuple:
        return (of_type(parts[0], name),)
    if origin is dict:
        return {of_type(parts[0], "key"): of_type(parts[1], "value")}
    if issubclass(hint, Value):
        return example(hint)
    return plain(hint, name, rules)


def plain(hint: Any, name: str, rules: tuple[Any, ...]) -> Any:
    if issubclass(hint, Enum):
        return next(iter(hint))
    if hint is bool:
        return True
    if hint is int:
        return max(bound(rules, Ge, "ge", 0), 1)
    if any(isinstance(rule, StringConstraints) and "0-9a-f]{32}" in str(rule.pattern) for rule in rules):
        return "0123456789abcdef" * 2
    own = name.replace("_", "-")
    return f"tenant/{own}" if FULL in rules else own


def path_of(cls: type[Event]) -> Path:
    return GOLDEN / f"{cls.type}.json"


def missing_effects() -> list[dict[str, Any]]:
    """The full form of each effect that the golden decision does not hold."""
    held = json.loads(path_of(Decision).read_bytes())["effects"]
    full = [json.loads(encode(example(Decision)))["effects"][at] for at in range(len(EFFECTS))]
    return [effect for effect in full if effect not in held]


def write_missing() -> None:
    for cls in TYPES.values():
        if not path_of(cls).exists():
            path_of(cls).write_bytes(encode(example(cls)) + b"\n")
    if more := missing_effects():
        golden = json.loads(path_of(Decision).read_bytes())
        golden["effects"] += more
        path_of(Decision).write_bytes(json.dumps(golden, separators=(",", ":")).encode() + b"\n")


if __name__ == "__main__":
    write_missing()
