"""The fields of a class as rows of a table: type, unit, default, bounds and meaning, as the class declares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, get_args

from pydantic import BaseModel

from fallow.shared.cluster.model.config import FORMS, GPUS_MAX, PLACEMENTS
from fallow.shared.events.base import LARGEST_INTEGER, LATEST_MS, JobId, Label, Name, NodeId
from fallow.shared.events.fields.value import Value, model_of
from fallow.shared.events.meanings import meanings_of
from fallow.shared.events.validation.rules_told import rule_broken

Json = Mapping[str, Any]


class Row(NamedTuple):
    """One field, as its table shows it."""

    field: str
    type: str
    unit: str
    default: str
    bounds: str
    meaning: str


NAMED_FORMS: Final = {
    get_args(kind)[1].pattern: word
    for kind, word in ((Name, "name"), (JobId, "job id"), (NodeId, "node id"), (Label, "label"))
}
"""Forms of text that many fields share: each is told once a page."""

NO_BOUND: Final = frozenset({LARGEST_INTEGER, LATEST_MS, GPUS_MAX})
"""The largest numbers that a record can hold; a page tells them once."""

UNITS: Final = {
    "_wall_ms": "ms of wall time",
    "_ms": "ms",
    "_s": "s",
    "gpu_milli": "1/1000 GPU",
    "cpu_milli": "1/1000 CPU",
    "_mib": "MiB",
    "_hours": "hours",
    "live_bytes_max": "bytes",
    "per_s": "jobs a second",
    "burst": "jobs",
    "gpus": "GPUs",
    "gpus_per_node": "GPUs",
    "gpus_per_job": "GPUs",
    "guaranteed": "GPUs",
    "limit": "GPUs",
    "borrow_limit": "GPUs",
    "lend_limit": "GPUs",
    "islands": "GPUs",
    "nics": "GPUs",
    "array": "elements",
    "array_max_running": "elements",
    "workers": "workers",
    "workers_min": "workers",
    "workers_per_job": "workers",
    "slice_workers": "workers",
    "scaling": "1/1000",
    "fail_attempts": "attempts",
    "budget": "failures",
    "retry_budget": "failures",
    "finished_jobs_max": "jobs",
    "max_pending_jobs": "jobs",
    "reservations_max": "jobs",
    "max_unacknowledged_starts_per_node": "workers",
    "breaker_nodes_per_minute": "nodes",
}
"""By the end of a field's name or, where none of these ends it, by the whole name."""

WITHOUT_UNIT: Final = frozenset(
    {"priority", "max_priority", "array_index", "ordinal", "until_version", "from_version", "weight"}
)
"""Numbers that count nothing."""

_SPANS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def schema_of(cls: type) -> Json:
    """The JSON schema of what a class is read from."""
    model = model_of(cls) if issubclass(cls, Value) else cls
    assert issubclass(model, BaseModel)
    return model.model_json_schema()


def rows_of(cls: type, link: Callable[[str], str] = str) -> tuple[Row, ...]:
    """The fields in their order. `link` makes the name of another class a link to its table."""
    schema, meanings = schema_of(cls), meanings_of(cls)
    kinds: Json = schema.get("$defs", {})
    required = schema.get("required", ())
    return tuple(
        Row(
            name,
            _type_of(part, kinds, link),
            unit_of(name),
            "required" if name in required or "const" in part else _default_of(name, part),
            _bounds_of(name, part, kinds),
            meanings.get(name, _TAGS.get(name, "")),
        )
        for name, part in schema["properties"].items()
    )


_TAGS: Final = {"driver": "Which kind of run it is. It must stand in `run`."}
"""A field that tells classes apart is declared by no line of theirs."""


def unit_of(name: str) -> str:
    """What a number in this field counts."""
    ends = [end for end in UNITS if name == end or (end.startswith("_") and name.endswith(end))]
    return UNITS[max(ends, key=len)] if ends else ""


def _inner(part: Json) -> Json:
    """Without the choice of no value, of which the default tells."""
    choices = [each for each in part.get("anyOf", ()) if each.get("type") != "null"]
    return choices[0] if choices else part


def _type_of(part: Json, kinds: Json, link: Callable[[str], str]) -> str:
    part = _inner(part)
    if "oneOf" in part:
        return " or ".join(_type_of(each, kinds, link) for each in part["oneOf"])
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return "word" if "enum" in kinds[name] else link(name)
    if part["type"] == "array":
        return f"list of {_type_of(part['items'], kinds, link)}"
    if part["type"] == "object":
        values = part.get("additionalProperties") or next(iter(part["patternProperties"].values()))
        return f"mapping to {_type_of(values, kinds, link)}"
    if part["type"] == "string":
        return "word" if "enum" in part or "const" in part else NAMED_FORMS.get(part.get("pattern", ""), "text")
    return {"integer": "integer", "boolean": "boolean"}[part["type"]]


def _default_of(name: str, part: Json) -> str:
    value = part.get("default")
    if isinstance(value, dict) and ("$ref" in part or "oneOf" in part):
        return "its own defaults"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int):
        return f"`{value}`{_span(value) if name.endswith('_ms') else ''}"
    if isinstance(value, str):
        return f"`{value}`"
    if isinstance(value, list) and value:
        return f"`{_listed(value)}`"
    assert not value, f"{name}: no words for the default {value}"
    return "none"


def _listed(values: list[Any]) -> str:
    """A list as YAML has it; of an object only its name, since the rest are defaults of its own."""
    shown = [f"{{name: {each['name']}}}" if isinstance(each, dict) else f'"{each}"' for each in values]
    return f"[{', '.join(shown)}]"


def _span(value: int) -> str:
    for size, unit in _SPANS:
        if value and value % size == 0:
            return f" ({value // size} {unit})"
    return ""


def _bounds_of(name: str, part: Json, kinds: Json) -> str:
    part = _inner(part)
    told = [*_range_of(part), *_lengths_of(part)]
    if name == "placement":
        told = [_one_of(PLACEMENTS)]
    kind = kinds.get(part.get("$ref", "").rpartition("/")[2], part)
    if "enum" in kind or "const" in kind:
        told.append(_one_of(kind.get("enum") or [kind["const"]]))
    pattern = part.get("pattern")
    if pattern is not None and pattern not in NAMED_FORMS and name != "placement":
        told.append(form_of(pattern))
    for inner in (part.get("items"), part.get("additionalProperties"), *part.get("patternProperties", {}).values()):
        if isinstance(inner, Mapping) and (of_each := _bounds_of("", inner, kinds)):
            told.append(f"each {of_each}")
    return "; ".join(told)


def _one_of(values: Any) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _range_of(part: Json) -> list[str]:
    least = part.get("minimum")
    most = part.get("maximum", part["exclusiveMaximum"] - 1 if "exclusiveMaximum" in part else None)
    most = None if most in NO_BOUND else most
    if least is not None and most is not None:
        return [f"{least:,} to {most:,}"]
    return [f"at least {least:,}"] if least else []


def _lengths_of(part: Json) -> list[str]:
    noun = "characters" if part.get("type") == "string" else "items"
    least, most = (part.get(f"{end}{'Length' if noun == 'characters' else 'Items'}") for end in ("min", "max"))
    told = [f"at least {least} {noun if least > 1 else noun[:-1]}"] if least else []
    return [*told, f"at most {most:,} {noun}"] if most is not None else told


def form_of(pattern: str) -> str:
    """What a pattern asks for, in the words of the message for a text that breaks it."""
    rule = FORMS.get(pattern) or rule_broken(
        {"loc": ("",), "type": "string_pattern_mismatch", "msg": "", "ctx": {"pattern": pattern}}
    )
    return rule.removeprefix("must be ").replace("must hold", "holds").replace("must have", "has")
