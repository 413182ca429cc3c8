"""What the fields of a job must be, in words: for each mistake that the model finds in a job file or in a command."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_args

from fallow.shared.checker_words import in_our_words
from fallow.shared.events.base import LINE_PATTERN, JobId, Label, Name, NodeId
from fallow.shared.events.fields.values import HANDED_PATTERN, VARIABLE_PATTERN, LabelRule
from fallow.shared.near import near

ID_RULE = "must be 1 to 128 of a to z, 0 to 9, '.', '_' and '-', beginning and ending with a letter or a digit"
JOB_RULE = f"{ID_RULE}; TENANT/ID says whose job it is"
NAME_RULE = "must be 1 to 63 of a to z, 0 to 9 and '-', beginning and ending with a letter or a digit"
LINE_RULE = "must be one line without control characters"
LABEL_RULE = "must be 1 to 128 letters, digits, '.', '_', '/' and '-', beginning and ending with a letter or a digit"

_PATTERNS: dict[str, str] = {
    get_args(kind)[1].pattern: rule
    for kind, rule in ((JobId, JOB_RULE), (NodeId, ID_RULE), (Name, NAME_RULE), (Label, LABEL_RULE))
}

_PATTERNS |= {
    LINE_PATTERN: LINE_RULE,
    VARIABLE_PATTERN: "the name of a variable must have a character, and neither '=' nor a control character",
    HANDED_PATTERN: "must hold no control characters but tab and newline",
    get_args(LabelRule)[2].pattern: "must be KEY=A, KEY=A|B, KEY!=A, KEY or !KEY, without spaces",
}

FIELDS_PAGE = "docs/reference/job-fields.md"

_UNSUPPORTED = frozenset({"scaling", "fungible", "heterogeneous"})
"""Fields that no value makes right: a user who is told the wrong type of one would mend it in vain."""

_ASKED_ELSEWHERE = {
    **dict.fromkeys(("gpu", "gpus", "num_gpus", "nvidia.com/gpu"), ("gpu_milli", "1000 is one GPU")),
    **dict.fromkeys(("cpu", "cpus", "num_cpus"), ("cpu_milli", "1000 is one CPU")),
    **dict.fromkeys(("mem", "memory", "memory_mb", "memory_gb"), ("memory_mib", "1024 is one GiB")),
}
"""What other schedulers call the resources of a worker; with our field and its unit."""

_KINDS = {
    "union_tag_not_found": f"is missing: 'virtual' or 'process' ({FIELDS_PAGE})",
    "dict_type": "must be a mapping",  # of JSON the checker says the same as of a mapping of fields
}


_LENGTHS = {
    "too_short": ("least", "min_length", "item"),
    "too_long": ("most", "max_length", "item"),
    "string_too_short": ("least", "min_length", "character"),
    "string_too_long": ("most", "max_length", "character"),
}

_OF_THE_DRIVER = frozenset({"union_tag_not_found", "union_tag_invalid"})


def field_of(loc: Sequence[int | str], kind: str = "") -> str:
    """The field as it stands in a job file, `run.argv[0]`: what is checked there says which driver's `run` it is, and
    tells of `run` what is at fault in its driver.
    """
    parts = [part for before, part in zip(("", *loc), loc, strict=False) if before != "run" or part not in _DRIVERS]
    parts = parts[:-2] if parts[-1:] == ["[key]"] else parts  # the name of an entry is at fault, and told as the value
    parts = [*parts, "driver"] if kind in _OF_THE_DRIVER and parts[-1:] == ["run"] else parts
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")


_DRIVERS = ("process", "virtual")


def is_of_the_driver(field: str, kind: str) -> bool:
    """Whether it is the driver of a `run` that is missing, or is none: pydantic tells the whole `run` as the value."""
    return kind in _OF_THE_DRIVER and field.endswith(".driver")


def rule_of(field: str, kind: str, message: str, context: Mapping[str, Any], *, of_a_job: bool = True) -> str:
    """The rule that a value of this field breaks. `kind`, `message` and `context` are what pydantic says of it. Only
    for what is `of_a_job` the page about jobs is named.
    """
    if of_a_job and field.partition("[")[0].partition(".")[0] in _UNSUPPORTED:
        return f"is unsupported in this version: leave it out ({FIELDS_PAGE})"
    if kind in _LENGTHS:
        words, bound, noun = _LENGTHS[kind]
        return f"must have at {words} {context[bound]:,} {noun}{'' if context[bound] == 1 else 's'}"
    if kind in _OF_THE_DRIVER and not is_of_the_driver(field, kind):
        return in_our_words(message)
    if kind == "union_tag_invalid":
        return f"must be {context['expected_tags'].replace(', ', ' or ')}"
    if kind == "string_pattern_mismatch":
        plain = f"is not written as {FIELDS_PAGE} says of {field.partition('.')[0].partition('[')[0]}"
        return _PATTERNS.get(context["pattern"], plain if of_a_job else f"must match {context['pattern']}")
    if kind == "extra_forbidden" and of_a_job:
        return unknown_field(field.split("."))
    return _KINDS[kind] if kind in _KINDS else in_our_words(message, field)


def unknown_field(path: Sequence[int | str], known: Collection[str] = ()) -> str:
    """That a job has no such field, and which may have been meant, of those that are `known` there or of resources."""
    name, around = str(path[-1]), path[:-1]
    if name.lower() in _ASKED_ELSEWHERE and around in ([], (), ["resources"], ("resources",)):
        ours, unit = _ASKED_ELSEWHERE[name.lower()]
        return f"unknown field (did you mean {'' if around else 'resources.'}{ours}? {unit}; {FIELDS_PAGE} lists all)"
    if (alike := near(name, known)) is not None:
        return f"unknown field (did you mean {alike}? {FIELDS_PAGE} lists all)"
    return f"unknown field ({FIELDS_PAGE} lists them)"


def causes(problems: Sequence[Any]) -> list[Any]:
    """The `errors` of pydantic without those that it reports only because something inside them is wrong: a list of
    one wrong item has none to it.
    """
    around = {problem["loc"][:length]: None for problem in problems for length in range(len(problem["loc"]))}
    return [problem for problem in problems if problem["loc"] not in around]


def is_shown(kind: str, value: object) -> bool:
    """Whether the value is told beside the rule: of a mapping or a list only where something else should stand there.
    `kind` is what pydantic calls the mistake.
    """
    is_of_another_kind = kind.endswith("_type") or kind in _OF_A_FEW
    return kind != "missing" and (is_of_another_kind or not isinstance(value, dict | list))


_OF_A_FEW = ("literal_error", "enum")


def rule_broken(problem: Mapping[str, Any]) -> str:
    """The rule that a value breaks which is of no job: `problem` is one of the `errors` of pydantic."""
    field = field_of(problem["loc"], problem["type"])
    return rule_of(field, problem["type"], problem["msg"], problem.get("ctx", {}), of_a_job=False)
