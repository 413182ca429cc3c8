"""The table of entries in SECURITY.md: it has each topic, with those who may write, read and delete it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fallow.shared.log.admin.access_rules import AccessFile, parse_access
from fallow.shared.log.admin.topics import parse_topics

TOP = Path(__file__).parents[3]
TOPICS = sorted(parse_topics((TOP / "deploy/kafka/topics.yaml").read_text(encoding="utf-8")).topics)
HEAD = "| entry | who may use it | what stops the others | what is left |"


def rows() -> dict[str, list[str]]:
    """The cells of each row by the first."""
    behind = (TOP / "SECURITY.md").read_text(encoding="utf-8").partition(HEAD)[2]
    lines = behind.partition("\n\n")[0].splitlines()[2:]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for line in lines if (cells := cells_of(line))}


def cells_of(line: str) -> list[str]:
    return line.removeprefix("|").removesuffix("|").split("|")


def row_of(topic: str) -> str:
    """Who may use it."""
    (found,) = [cells[0] for entry, cells in rows().items() if entry.startswith(f"topic `{topic}`")]
    return found


def named(who: str, verb: str) -> set[str]:
    """The users that this row names for the verb."""
    said = re.search(rf"\b{verb}[^:;]*:([^;]*)", who)
    return set(re.findall("`([^`]+)`", said[1])) if said else set()


@pytest.fixture(scope="module")
def access() -> AccessFile:
    return parse_access((TOP / "deploy/kafka/access.yaml").read_text(encoding="utf-8"), TOPICS)


@pytest.mark.parametrize("topic", TOPICS)
def test_the_table_says_who_may_use_a_topic(topic: str, access: AccessFile) -> None:
    who = row_of(topic)
    for verb, right in (("writes", "write"), ("reads", "read"), ("deletes", "delete")):
        rights = {name: getattr(each, right) for name, each in access.principals.items()}
        may = {name for name, topics in rights.items() if topics != "all" and topic in topics}
        may |= {"tenant-NAME"} if (topic, right) == ("submissions", "write") and access.tenants else set()
        assert named(who, verb) == may, f"{topic}: {verb}"


def test_each_entry_says_what_stops_the_others_and_what_is_left() -> None:
    assert [entry for entry, cells in rows().items() if len(cells) != 3 or not all(cells)] == []
    assert len(rows()) > 15
