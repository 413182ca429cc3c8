"""Hypothesis strategies for every value of the language, made from the classes themselves.

`values(SubmitJob)` draws any valid SubmitJob. What a class demands over several fields is mended in `MENDED`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from annotated_types import Ge, Le, Lt, MaxLen, MinLen
from hypothesis import strategies as st
from msgspec import Meta
from pydantic import StringConstraints
from pydantic.fields import FieldInfo

from fallow.shared.events import TYPES
from fallow.shared.events.base import LARGEST_INTEGER, Value
from fallow.shared.events.effects import (
    AnyEffect,
    Effect,
    JobResized,
    JobResizing,
    JobStarted,
    ReservationSet,
    RoomHeld,
)
from fallow.shared.events.fields.values import GPU, JobSpec, NodeSpec, ProcessRun, Resources, WorkerRange
from fallow.shared.events.submissions import JobChanges

V = TypeVar("V", bound=Value)
Fields = dict[str, Any]

EFFECTS: tuple[type[Effect], ...] = get_args(AnyEffect)
ITEMS_MAX = 3


def _whole_devices(fields: Fields) -> Fields:
    milli = fields.get("gpu_milli", GPU)
    return {**fields, "gpu_milli": milli if milli <= GPU else milli // GPU * GPU}


def _workers_in_order(fields: Fields) -> Fields:
    fewest = fields.get("workers_min")
    return fields if fewest is None else {**fields, "workers": max(fewest, fields.get("workers", 1))}


def _groups_cover_the_node(fields: Fields) -> Fields:
    islands = tuple(1 + size % 8 for size in fields.get("islands", ()))
    gpus = sum(islands) if islands else fields["gpus"]
    return {**fields, "islands": islands, "gpus": gpus, "nics": (gpus,) if fields.get("nics") and gpus else ()}


def _something_changes(fields: Fields) -> Fields:
    return fields if any(value is not None for value in fields.values()) else {"priority": 0}


def _with_a_program(fields: Fields) -> Fields:
    program, *arguments = fields["argv"]
    return {**fields, "argv": (program or "a", *arguments)}


def _equal_parts(fields: Fields) -> Fields:
    """A range has as many workers as devices, and each has a rank."""
    workers = max(1, len(fields["devices"]))
    return {**fields, "workers": workers, "rank": min(fields["rank"], LARGEST_INTEGER - workers)}


def _in_one_way(fields: Fields) -> Fields:
    """Workers stand one by one or in ranges."""
    one_by_one = ("workers", "add") if fields.get("ranges") else ("ranges",)
    return {name: value for name, value in fields.items() if name not in one_by_one}


def unchanged(fields: Fields) -> Fields:
    return fields


MENDED: dict[type[Value], Callable[[Fields], Fields]] = {
    Resources: _whole_devices,
    JobSpec: _workers_in_order,
    NodeSpec: _groups_cover_the_node,
    JobChanges: _something_changes,
    ProcessRun: _with_a_program,
    WorkerRange: _equal_parts,
    JobStarted: _in_one_way,
    JobResized: _in_one_way,
    ReservationSet: _in_one_way,
    RoomHeld: _in_one_way,
    JobResizing: _in_one_way,
}


@cache
def values(cls: type[V]) -> st.SearchStrategy[V]:
    hints = get_type_hints(cls, include_extras=True)
    needed: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in msgspec.structs.fields(cls):
        (needed if field.required else optional)[field.name] = of_type(hints[field.name])
    drawn = st.fixed_dictionaries(needed, optional=optional).map(MENDED.get(cls, unchanged))
    return drawn.map(lambda fields: cls(**fields))


def events() -> st.SearchStrategy[Any]:
    return st.sampled_from(sorted(TYPES)).flatmap(lambda type_: values(TYPES[type_]))


def effects() -> st.SearchStrategy[Any]:
    return st.sampled_from(EFFECTS).flatmap(values)


def of_type(hint: Any, rules: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return of_type(parts[0], rules + tuple(flat(parts[1:])))
    if origin in (Union, UnionType):
        return st.one_of([of_type(part) for part in parts])
    if origin is Literal:
        return st.sampled_from(parts)
    if origin is tuple:
        most = min(bound(rules, MaxLen, "max_length", ITEMS_MAX), ITEMS_MAX)
        return st.lists(of_type(parts[0]), min_size=bound(rules, MinLen, "min_length", 0), max_size=most).map(tuple)
    if origin is dict:
        return st.dictionaries(of_type(parts[0]), of_type(parts[1]), max_size=ITEMS_MAX)
    return plain(hint, rules)


def plain(hint: Any, rules: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    if issubclass(hint, Value):
        return st.deferred(lambda: values(hint))
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    if hint is bool:
        return st.booleans()
    if hint is int:
        most = min(bound(rules, Le, "le", LARGEST_INTEGER), bound(rules, Lt, "lt", LARGEST_INTEGER + 1) - 1)
        return st.integers(bound(rules, Ge, "ge", -LARGEST_INTEGER), most)
    if hint is str:
        return text(rules)
    assert hint is NoneType, f"{hint} is a type that no strategy knows"
    return st.none()


def text(rules: tuple[Any, ...]) -> st.SearchStrategy[str]:
    for rule in rules:
        if isinstance(rule, StringConstraints) and isinstance(rule.pattern, str):
            # Long names are tested in tables; short ones are found faster.
            pattern = rule.pattern.removeprefix("^").removesuffix("$")
            return st.from_regex(pattern.replace("126}", "4}").replace("61}", "4}"), fullmatch=True)
    return st.text(max_size=12)


def flat(rules: tuple[Any, ...]) -> list[Any]:
    return [inner for rule in rules for inner in (rule.metadata if isinstance(rule, FieldInfo) else [rule])]


def bound(rules: tuple[Any, ...], kind: type[Any], name: str, otherwise: int) -> int:
    """The narrowest of these bounds."""
    found = [
        int(getattr(rule, name)) for rule in rules if isinstance(rule, kind | Meta) and getattr(rule, name) is not None
    ]
    return (max if kind in (Ge, MinLen) else min)(found, default=otherwise)
