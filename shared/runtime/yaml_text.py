"""YAML as people write it: plain values only, and no number that no field could hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

NUMBER_CHARS_MOST = 64
"""Python makes a number of any length and then refuses to print it, so that no message could name it."""


class YamlLoader(yaml.SafeLoader):
    """The safe loader, which says best what is wrong. Raises ValueError for a number of too many digits."""


class QuickYamlLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same, in C where PyYAML was built with libyaml: 20 times as fast, for thousands of lines. It ends the process
    where a text nests without end, so look at its events first.
    """


def read_yaml(text: str) -> Any:
    """The one document of a text. Raises YAMLError, ValueError and RecursionError."""
    return yaml.load(text, Loader=YamlLoader)  # noqa: S506 - it is the safe one, made stricter


def read_yaml_documents(text: str) -> Iterator[Any]:
    """Each document of a text. Raises as above, where a document cannot be read."""
    yield from yaml.load_all(text, Loader=YamlLoader)


def _whole_number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    if len(node.value) > NUMBER_CHARS_MOST:
        raise ValueError(f"line {node.start_mark.line + 1}: a number of {len(node.value)} characters")
    return loader.construct_yaml_int(node)


for _loader in (YamlLoader, QuickYamlLoader):
    _loader.add_constructor("tag:yaml.org,2002:int", _whole_number)
