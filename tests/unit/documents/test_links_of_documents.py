"""Every link of a document leads to a file that is there, and to a heading that stands in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]
DOCUMENTS = sorted([*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md"), *(TOP / "examples").rglob("*.md")])

CODE_BLOCK = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\[\]]*\]\(<?([^)\s>]+)>?\)")
CODE = re.compile(r"`[^`]*`")


def links(text: str) -> Iterator[str]:
    """What the links of a document name; code is no link."""
    plain = CODE_BLOCK.sub("", text)
    for found in LINK.finditer(CODE.sub("code", plain)):
        yield found[1]


def anchors(text: str) -> set[str]:
    """As GitHub makes them of headings: lower case, a dash for each space, no marks, a number at one that is again."""
    found, counts = set[str](), Counter[str]()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", CODE_BLOCK.sub("", text), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found.add(f"{name}-{counts[name]}" if counts[name] else name)
        counts[name] += 1
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(TOP).as_posix())
def test_no_link_of_a_document_is_dead(document: Path) -> None:
    dead = []
    for link in links(document.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name) if name else document
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            dead.append(link)
    assert dead == []


def test_a_dead_link_would_be_found() -> None:
    headings = "# Users: who\n```\n# no heading\n```\n## `a` & b\n## a & b\n"
    text = f"{headings}\n`[no](link.md)` [there](#users-who) [dead](#users)\n"
    assert [*links(text)] == ["#users-who", "#users"]
    assert anchors(text) == {"users-who", "a--b", "a--b-1"}
