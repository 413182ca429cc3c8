"""Reads the cell file, and says of each mistake where it stands: file, line, field, value and rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from fallow.shared.cluster.model.config import FORMS, PLACEMENTS, CellFile, CellPart
from fallow.shared.events.codec.encoding import written
from fallow.shared.events.validation.rules_told import causes, is_shown, rule_broken
from fallow.shared.near import meant, there
from fallow.shared.runtime.errors.several_lines import ErrorOfSeveralLines
from fallow.shared.runtime.files.signs import visible
from fallow.shared.runtime.files.text_file import TextFileError, read_text_file
from fallow.shared.runtime.files.yaml_text import (
    FieldPath,
    QuickYamlLoader,
    error_of,
    field_name,
    in_whole_characters,
    key_mistakes,
    look_at_depth,
)

if TYPE_CHECKING:
    from fallow.shared.runtime.process import Context

MISTAKES_TOLD = 20
"""A person mends these first; a file that was generated wrongly has thousands."""


SETTINGS: tuple[str, ...] = CellPart.model_fields["policy"].default.__struct_fields__

KEYS_FIELD = "signing"
"""No text below it is shown: it may be a private key that was put there by mistake, or a part of one."""


class CellFileError(ErrorOfSeveralLines, ValueError):
    """The cell file cannot be used. One line for each mistake: file, line, field, value and rule."""


def load_cell_file(path: Path) -> CellFile:
    """The cell file, checked as a whole. Raises CellFileError."""
    try:
        text = read_text_file(path)
    except TextFileError as error:
        raise CellFileError(f"{visible(str(path))}: {error}") from error
    return parse_cell_file(text, visible(str(path)))


MistakeIn = Callable[[CellFile], str | None]
"""What a process has against a file that can be read: field, value and rule. None where it may go by it."""


def no_mistake_in(_: CellFile) -> None:
    """Of a process that goes by each file that can be read."""


async def reloaded(context: Context[Any], before: CellFile, mistake_in: MistakeIn = no_mistake_in) -> CellFile | None:
    """The file read again, beside the other work of the process; None where it cannot be used and the old one stays in
    force. The log tells, and the metric `fallow_cell_file_reloads_total`.
    """
    path = context.settings.cell_file
    try:
        file = await read_again(context, before, mistake_in)
    except CellFileError as error:
        context.telemetry.reloads.labels("refused").inc()
        context.logger.warning("the cell file has an error, the old one stays in force", reason=str(error))
        return None
    context.telemetry.reloads.labels("in_force").inc()
    context.logger.info("the cell file was read again", file=str(path))
    return file


async def read_again(context: Context[Any], before: CellFile, mistake_in: MistakeIn = no_mistake_in) -> CellFile:
    """The file as it is now. Raises CellFileError, also where it has other cells than before, or a mistake."""
    path = context.settings.cell_file
    file = await context.host.beside(partial(context.host.cell_file, path), "cell file", may_be_long=True)
    if _cells(file) != _cells(before):
        rule = "a reload keeps the cells and their ordinals; to change them, restart the services"
        raise CellFileError(f"{visible(str(path))}: cells: {rule}")
    if mistake := mistake_in(file):
        raise CellFileError(f"{visible(str(path))}: {mistake}")
    return file


def _cells(file: CellFile) -> dict[str, int]:
    return {cell.name: cell.ordinal for cell in file.cells}


def parse_cell_file(text: str, name: str) -> CellFile:
    """The cell file of this text; `name` is how messages call the file. Raises CellFileError."""
    try:
        root, data = _read(text, name)
    except CellFileError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise CellFileError(f"{name}: {error_of(error)}") from error
    places = _Places()
    places.visit((), root)
    try:
        file = CellFile.model_validate(data)
    except ValidationError as error:
        problems = causes(error.errors(include_url=False))
        raise _all_of(name, [line for each in problems for line in _mistakes(places, each)]) from error
    misspelt = [*_no_placements(file, places), *_quotas_of_no_pool(file, places)]
    if misspelt:
        raise _all_of(name, misspelt)
    return file


def _no_placements(file: CellFile, places: _Places) -> Iterator[str]:
    """Unknown placement policies: placement would refuse the whole policy of the cell for one. A rule for the writer of
    a file, as the next.
    """
    for number, cell in enumerate(file.cells):
        name = cell.policy.placement
        if name not in PLACEMENTS:
            path: FieldPath = ("cells", number, "policy", "placement")
            rule = f"no such policy{meant(name, PLACEMENTS)}; {there(PLACEMENTS)}"
            yield f"line {places.line(path)}: {field_name(path)}{_value(name)}: {rule}"


def _quotas_of_no_pool(file: CellFile, places: _Places) -> Iterator[str]:
    """The quotas of a GPU type that no pool has: they would limit and guarantee nothing. A rule for the writer of a
    file: one that a log holds is read without it.
    """
    types = {pool.gpu_type for cell in file.cells for pool in cell.pools}
    for number, tenant in enumerate(file.tenants):
        for at, quota in enumerate(tenant.quotas):
            if quota.gpu_type not in types:
                path: FieldPath = ("tenants", number, "quotas", at, "gpu_type")
                rule = f"no pool has GPUs of this type, there are: {', '.join(sorted(types))}"
                yield f"line {places.line(path)}: {field_name(path)}{_value(quota.gpu_type)}: {rule}"


def _read(text: str, name: str) -> tuple[yaml.Node, Any]:
    """The nodes of a YAML text and the values that they stand for. Raises CellFileError, YAMLError, YamlTextError."""
    text = in_whole_characters(text)
    look_at_depth(text)
    loader = QuickYamlLoader(text)  # type: ignore[call-arg]  # its base is chosen when it runs
    try:
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            rule = "the file must be a mapping with cells and tenants"
            raise CellFileError(f"{name}: line 1: {rule} (got {_kind_of(root)})")
        keys = list(key_mistakes(root))
        if keys:
            raise _all_of(name, keys)
        return root, loader.construct_document(root)
    finally:
        loader.dispose()


def _kind_of(root: yaml.Node | None) -> str:
    if root is None:
        return "nothing"
    return written(root.value) if isinstance(root, yaml.ScalarNode) else "a list"


def _all_of(name: str, mistakes: list[str]) -> CellFileError:
    """The first mistakes, each with the name of the file, and how many more there are."""
    lines = [f"{name}: {line}" for line in mistakes[:MISTAKES_TOLD]]
    if len(mistakes) > MISTAKES_TOLD:
        lines.append(f"{name}: and {len(mistakes) - MISTAKES_TOLD} more")
    return CellFileError("\n".join(lines))


@dataclass(slots=True)
class _Places:
    """Where each field stands, and where each plain value stands last."""

    lines: dict[FieldPath, int] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    seen: dict[int, None] = field(default_factory=dict)

    def visit(self, path: FieldPath, node: yaml.Node) -> None:
        """Note the lines below `node`. What an alias repeats keeps the line of its first place."""
        self.lines.setdefault(path, node.start_mark.line + 1)
        if id(node) in self.seen:
            return
        self.seen[id(node)] = None
        if isinstance(node, yaml.MappingNode):
            self._visit_mapping(path, node)
        elif isinstance(node, yaml.SequenceNode):
            for number, item in enumerate(node.value):
                self.visit((*path, number), item)
        else:
            self.values[node.value] = node.start_mark.line + 1

    def _visit_mapping(self, path: FieldPath, node: yaml.MappingNode) -> None:
        for key, value in node.value:
            self.lines[(*path, key.value)] = key.start_mark.line + 1
            self.visit((*path, key.value), value)

    def line(self, path: FieldPath) -> int:
        """The line of a field, or of the nearest thing around it that stands in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def line_of_value(self, rule: str) -> int | None:
        """The last line on which the value stands that a rule quotes: the second of two, or the unknown one."""
        quoted = re.search(r"'([^']*)'", rule)
        return self.values.get(quoted[1]) if quoted else None


def _mistakes(places: _Places, problem: Any) -> list[str]:
    """What a problem tells: where settings of a policy are unknown, a line for each of them."""
    path, given = tuple(problem["loc"]), problem["input"]
    of_policy = path[2:] == ("policy",) and isinstance(given, dict)
    unknown = [str(key) for key in given if key not in SETTINGS] if of_policy else []
    return [_unknown_setting(places, (*path, key)) for key in unknown] or [_mistake(places, problem)]


def _unknown_setting(places: _Places, path: FieldPath) -> str:
    key = str(path[-1])
    return f"line {places.line(path)}: {field_name(path)}: unknown setting{meant(key, SETTINGS)}; {there(SETTINGS)}"


def _mistake(places: _Places, problem: Any) -> str:
    path: FieldPath = tuple(problem["loc"])
    given = problem["input"]
    may_be_key = KEYS_FIELD in path and not isinstance(given, int | float)
    shown = _value(given) if is_shown(problem["type"], given) and not may_be_key else ""
    form = FORMS.get(problem.get("ctx", {}).get("pattern", ""))
    rule = _unknown(path) if problem["type"] == "extra_forbidden" else form or rule_broken(problem)
    at = f"{field_name(path)}{shown}: " if path else ""
    line = places.line_of_value(rule) if problem["type"] == "value_error" else None
    return f"line {line or places.line(path)}: {at}{rule}"


def _unknown(path: FieldPath) -> str:
    """Which fields there are where an unknown one stands, the one first that it may have been meant for."""
    known = _fields_around(path)
    return f"unknown field{meant(str(path[-1]), known)}; {there(known)}"


def _fields_around(path: FieldPath) -> list[str]:
    """The fields of the part of the file in which this field stands."""
    part: type[BaseModel] = CellFile
    for name in path[:-1]:
        if isinstance(name, str) and name in part.model_fields:
            part = next(_parts_in(part.model_fields[name].annotation), part)
    return list(part.model_fields)


def _parts_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The parts of a cell file in a type: `Pool` in `tuple[Pool, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _parts_in(inner)


def _value(value: Any) -> str:
    return f" = {written(value)}"
