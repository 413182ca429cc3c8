"""YAML as people write it: plain values only, each key once and a text, and no number that could be meant otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import yaml

from fallow.shared.checker_words import HALF_A_CHARACTER
from fallow.shared.events.codec.encoding import shorten, written
from fallow.shared.runtime.files.yaml_characters import NoCharacter, with_whole_characters

NUMBER_CHARS_MAX = 64
"""Python makes a number of any length and then refuses to print it, so that no message could name it."""

MERGED_MAX = 100_000
"""So many keys may be merged into mappings in one document: each level of merges multiplies them."""

DEPTH_MAX = 100
"""So many levels a document has at most, aliases followed: what reads the values goes down one level at a time."""

FieldPath = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_KEY_TAGS = (f"{_TAG}str", _MERGE)
_HALF = re.compile("[\ud800-\udfff]")
_OCTAL = re.compile(r"[-+]?0[0-9_]+")
_NOT_OF_DIGITS = re.compile(r"[-+]?0[bx].*|.*_.*", re.DOTALL)


class YamlTextError(ValueError):
    """The text cannot be used. One line: where it stands, the field or value, and the rule."""


class _PlainConstructor(yaml.constructor.SafeConstructor):
    """Makes plain values. Raises YamlTextError for a key that is no text or stands twice, and for a number that could
    be meant otherwise than YAML 1.1 reads it.
    """

    def construct_document(self, node: yaml.Node) -> Any:
        """The value of a document. Its keys are looked at before: merging another mapping repeats them rightly."""
        for mistake in key_mistakes(node):
            raise YamlTextError(mistake)
        _must_merge_few(node)
        _depth(node, {})
        return super().construct_document(node)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """A text, of whole characters only."""
        found: str = super().construct_scalar(node)
        if _HALF.search(found):
            raise YamlTextError(f"line {node.start_mark.line + 1}: {written(found)}: {HALF_A_CHARACTER}")
        return found


class YamlLoader(_PlainConstructor, yaml.SafeLoader):
    """The safe loader, which says best what is wrong."""


class QuickYamlLoader(_PlainConstructor, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The plain loader, in C where PyYAML was built with libyaml: 20 times as fast, for thousands of lines. It ends the
    process where a text nests without end, so look at its events first.
    """


LONG_CHARS, OPENERS_MAX = 65_536, 1_000
"""A longer text is read by the quick loader, which says less well what is wrong: the other takes minutes for some MB.
So is one with more beginnings of lists and maps, which cost the other one more the deeper they stand.
"""


def read_yaml(text: str) -> Any:
    """The one document of a text. Raises YamlTextError."""
    try:
        text = in_whole_characters(text)
        return yaml.load(text, Loader=_loader_for(text))  # noqa: S506 - each is a safe one, made stricter
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise error_of(error) from error


def read_yaml_documents(text: str) -> Iterator[Any]:
    """Each document of a text. Raises YamlTextError, where a document cannot be read."""
    try:
        text = in_whole_characters(text)
        yield from yaml.load_all(text, Loader=_loader_for(text))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise error_of(error) from error


def in_whole_characters(text: str) -> str:
    """The text so that each loader reads its characters as JSON would. Raises NoCharacter."""
    return with_whole_characters(text, _quickest(text), DEPTH_MAX)


def _quickest(text: str) -> type[YamlLoader | QuickYamlLoader]:
    openers = text.count("[") + text.count("{") + text.count("- ")
    return YamlLoader if len(text) < LONG_CHARS and openers <= OPENERS_MAX else QuickYamlLoader


def _loader_for(text: str) -> type[YamlLoader | QuickYamlLoader]:
    if _quickest(text) is YamlLoader:
        with suppress(yaml.YAMLError):  # what is no YAML, the loader tells better
            look_at_depth(text)
        return YamlLoader
    look_at_depth(text)
    return QuickYamlLoader


def must_be_printable(text: str) -> None:
    """Raises YamlTextError for a character that YAML has only in quotes, and written otherwise: the reader tells no
    line of it.
    """
    if found := yaml.reader.Reader.NON_PRINTABLE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise YamlTextError(f"line {line}: {_no_character(found[0])}")


def _no_character(sign: str) -> str:
    shown = repr(sign)
    return f"{shown}: a file of YAML holds no such character; in quotes it may be written {shown[1:-1]}"


def look_at_depth(text: str) -> None:
    """To be called before a loader: time goes with levels, and the quick one has no bound of them. Raises YamlTextError
    where the text nests in too many levels or holds what no YAML does, YAMLError.
    """
    must_be_printable(text)
    depth = 0
    for event in yaml.parse(text, Loader=QuickYamlLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            line = event.start_mark.line + 1  # type: ignore[union-attr]  # each event that is parsed has its mark
            raise YamlTextError(f"line {line}: nested in more than {DEPTH_MAX} levels")


def error_of(error: Exception) -> YamlTextError:
    """What went wrong in reading a text, in one line."""
    if isinstance(error, YamlTextError):
        return error
    if isinstance(error, NoCharacter):
        field = f"{field_name(error.path)}: " if error.path else ""
        return YamlTextError(f"line {error.line}: {field}'{error.shown}': {error.rule}")
    if isinstance(error, RecursionError):
        return YamlTextError("nested in too many levels")
    if isinstance(error, yaml.reader.ReaderError) and isinstance(error.character, int):
        return YamlTextError(_no_character(chr(error.character)))
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or (str(error).splitlines() or [type(error).__name__])[0]
    return YamlTextError(f"{where}not YAML: {shorten(problem)}")


def _depth(node: yaml.Node, known: dict[int, int]) -> int:
    """How many levels there are from this node on. An alias stands behind what it names, so that is known by then: no
    chain of aliases is gone down here. Raises YamlTextError for more than `DEPTH_MAX`.
    """
    if not isinstance(node, yaml.CollectionNode):
        return 0
    if id(node) not in known:
        known[id(node)] = 0  # one that is a part of itself, which readers of the values refuse
        known[id(node)] = max(_depths_below(node, known), default=1)
    if known[id(node)] > DEPTH_MAX:
        line = node.start_mark.line + 1
        raise YamlTextError(f"line {line}: nested in more than {DEPTH_MAX} levels, aliases followed")
    return known[id(node)]


def _depths_below(node: yaml.CollectionNode, known: dict[int, int]) -> Iterator[int]:
    """How many levels there are by each part of a node. What is merged into a mapping is no level of its own."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else [(None, item) for item in node.value]
    for key, value in pairs:
        if key is None or key.tag != _MERGE:
            yield 1 + _depth(value, known)
            continue
        for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
            yield _depth(part, known)


def _must_merge_few(root: yaml.Node) -> None:
    """Raises YamlTextError where the merge keys (`<<`) of a document stand for too many keys. Nothing is merged yet."""
    sizes, merged = dict[int, int](), 0
    for mapping in _mappings(root, {}):
        if any(key.tag == _MERGE for key, _ in mapping.value):
            merged += _size(mapping, sizes)
        if merged > MERGED_MAX:
            line = mapping.start_mark.line + 1
            raise YamlTextError(f"line {line}: merge keys (<<) stand for more than {MERGED_MAX} keys")


def _mappings(node: yaml.Node, seen: dict[int, None]) -> Iterator[yaml.MappingNode]:
    if id(node) in seen or not isinstance(node, yaml.CollectionNode):
        return
    seen[id(node)] = None
    if isinstance(node, yaml.MappingNode):
        yield node
    pairs = node.value if isinstance(node, yaml.MappingNode) else [(None, item) for item in node.value]
    for _, value in pairs:
        yield from _mappings(value, seen)


def _size(mapping: yaml.MappingNode, sizes: dict[int, int]) -> int:
    """How many keys the mapping has when all is merged; more than `MERGED_MAX` count as one more than these."""
    known = sizes.get(id(mapping))
    if known is not None:
        return known
    sizes[id(mapping)] = 0  # one that merges itself, which the loader refuses
    size = 0
    for key, value in mapping.value:
        parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
        below = [part for part in parts if isinstance(part, yaml.MappingNode)] if key.tag == _MERGE else []
        size += sum(_size(part, sizes) for part in below) if key.tag == _MERGE else 1
    sizes[id(mapping)] = min(size, MERGED_MAX + 1)
    return sizes[id(mapping)]


def key_mistakes(root: yaml.Node) -> Iterator[str]:
    """A line for each key below `root` that is no text, or that stands in its mapping already."""
    yield from _key_mistakes((), root, {})


def _key_mistakes(path: FieldPath, node: yaml.Node, seen: dict[int, None]) -> Iterator[str]:
    if id(node) in seen or not isinstance(node, yaml.CollectionNode):
        return
    seen[id(node)] = None
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _key_mistakes((*path, number), item, seen)
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.tag not in _KEY_TAGS or not isinstance(key, yaml.ScalarNode):
            yield f"line {line}: {_of(path)}the key {_key_shown(key)} is no text: put it in quotes"
            continue
        if key.value in lines:
            yield f"line {line}: {field_name((*path, key.value))}: the key stands in line {lines[key.value]} already"
        lines[key.value] = line
        yield from _key_mistakes((*path, key.value), value, seen)


def _of(path: FieldPath) -> str:
    return f"{field_name(path)}: " if path else ""


def _key_shown(key: yaml.Node) -> str:
    if isinstance(key, yaml.ScalarNode):
        return shorten(key.value)
    return "a mapping" if isinstance(key, yaml.MappingNode) else "a list"


def field_name(path: FieldPath) -> str:
    """`cells[0].pools[1].gpus`, as one short line whatever its keys hold."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return shorten(text.removeprefix("."))


def _whole_number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    _must_be_clear(node)
    return _as_its_tag_says(loader.construct_yaml_int, node)


def _broken_number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    _must_be_clear(node, is_whole=False)
    return _as_its_tag_says(loader.construct_yaml_float, node)


def _truth(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    return _as_its_tag_says(loader.construct_yaml_bool, node)


def _must_be_clear(node: yaml.Node, *, is_whole: bool = True) -> None:
    """YAML 1.1 reads 1:30 as 90, 010 as 8, 0x10 as 16 and 1_0 as 10, which no reader of a file would, or most likely is
    mistyped.
    """
    if not isinstance(node, yaml.ScalarNode):  # a list with the tag of a number, which the loader refuses
        return
    line = node.start_mark.line + 1
    if is_whole and len(node.value) > NUMBER_CHARS_MAX:
        raise YamlTextError(
            f"line {line}: a number of {len(node.value)} characters: at most {NUMBER_CHARS_MAX} are read"
        )
    if ":" in node.value:
        raise YamlTextError(f"line {line}: {shorten(node.value)}: a number has no colons; put text in quotes")
    if is_whole and _OCTAL.fullmatch(node.value):
        raise YamlTextError(f"line {line}: {shorten(node.value)}: a number does not begin with 0; put text in quotes")
    if _NOT_OF_DIGITS.fullmatch(node.value):
        raise YamlTextError(
            f"line {line}: {shorten(node.value)}: a number is written with digits alone; put text in quotes"
        )


def _as_its_tag_says(construct: Callable[[yaml.ScalarNode], Any], node: yaml.ScalarNode) -> Any:
    try:
        return construct(node)
    except (ValueError, LookupError) as error:
        what = node.tag.removeprefix(_TAG)
        raise YamlTextError(f"line {node.start_mark.line + 1}: {shorten(repr(node.value))}: is no {what}") from error


def _as_it_stands(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    """No field wants a time of Python, which would put `2020-01-01T10:00:00Z` into words of its own."""
    return loader.construct_yaml_str(node)


def _unknown(_loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    tag = f"!!{node.tag.removeprefix(_TAG)}" if node.tag.startswith(_TAG) else node.tag
    raise YamlTextError(f"line {node.start_mark.line + 1}: the tag {shorten(tag)} cannot be used: leave it out")


for _loader in (YamlLoader, QuickYamlLoader):
    _loader.add_constructor(f"{_TAG}int", _whole_number)
    _loader.add_constructor(f"{_TAG}float", _broken_number)
    _loader.add_constructor(f"{_TAG}bool", _truth)
    _loader.add_constructor(f"{_TAG}timestamp", _as_it_stands)
    for _kind in (*(f"{_TAG}{name}" for name in ("binary", "set", "omap", "pairs")), None):
        _loader.add_constructor(_kind, _unknown)  # None: each that has no other
