"""How much every container in reach of some objects holds: for tests that let many things come and go."""

from __future__ import annotations

import gc
from array import array
from collections import deque
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

CONTAINERS = (dict, list, set, deque, array, bytearray)
NOT_ENTERED = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType)


def held_by(*roots: object) -> dict[str, int]:
    """How many entries the containers hold, all together, by the class and the attribute that lead to them."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    todo: list[tuple[str, Any]] = [(type(root).__name__, root) for root in roots]
    while todo:
        path, thing = todo.pop()
        if id(thing) in seen or isinstance(thing, NOT_ENTERED):
            continue
        seen.add(id(thing))
        if isinstance(thing, CONTAINERS):
            found[path] = found.get(path, 0) + len(thing)
        todo += [(name, part) for name, part in _parts(path, thing) if gc.is_tracked(part) or _is_flat(part)]
    return found


def _is_flat(part: object) -> bool:
    """Containers of plain values, which the collector does not track."""
    return isinstance(part, CONTAINERS)


def _parts(path: str, thing: Any) -> list[tuple[str, Any]]:
    if isinstance(thing, MethodType):
        return [(path, thing.__self__)]
    if isinstance(thing, dict):
        return [(path, part) for part in (*thing.keys(), *thing.values())]
    if isinstance(thing, (list, tuple, set, frozenset, deque)):
        return [(path, part) for part in thing]
    names = [*getattr(thing, "__dict__", ()), *(name for kind in type(thing).__mro__ for name in _slots(kind))]
    kind = type(thing).__name__
    return [(f"{kind}.{name}", part) for name in names if (part := getattr(thing, name, None)) is not None]


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
