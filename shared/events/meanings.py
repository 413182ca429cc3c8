"""What each field of a class means: the text that stands below it in the source, for pages and schemas that are made
from the classes. Nothing that runs in a service asks for it.
"""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from textwrap import dedent


def meanings_of(cls: type) -> dict[str, str]:
    """The text below each field that has one, as one line, by the field's name."""
    (tree,) = ast.parse(dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, below in pairwise(tree.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and (text := _text_of(below)):
            found[field.target.id] = " ".join(text.split())
    return found


def _text_of(line: ast.stmt) -> str | None:
    value = line.value if isinstance(line, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
