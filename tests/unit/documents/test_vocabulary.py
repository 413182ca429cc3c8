"""Our own words: each is defined in docs/glossary.md, and none that was given up comes back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from fallow.services.placement.search.reason_precedence import ReasonKind
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.asyncapi import TOPICS
from fallow.shared.events.base import TYPES
from fallow.shared.events.fields.values import JobKind, Level, LoanStatus, NodeRole, NodeStatus, Wish
from fallow.shared.events.queue import QueueDiscipline, QueueOrder

TOP = Path(__file__).parents[3]
LINE = re.compile(r"- \*\*([a-z][a-z -]*)\*\*: (.+)\.")
LINES = (TOP / "docs" / "glossary.md").read_text(encoding="utf-8").split("\n\n", 2)[2].splitlines()
TERMS = [found[1] for line in LINES if (found := LINE.fullmatch(line))]

ENUMS: tuple[type[StrEnum], ...] = (
    *(JobStatus, NodeStatus, LoanStatus, JobKind, NodeRole, Level, Wish),
    *(QueueDiscipline, QueueOrder, ReasonKind),
)


def words_of_the_language() -> set[str]:
    """What a reader of answers, records and pages meets: statuses, disciplines, levels, services, topics, and what each
    record is about.
    """
    services = {path.name for path in (TOP / "services").iterdir() if (path / "__main__.py").exists()}
    about = {re.sub(r"s$", "", type_.split(".")[1]) for type_ in TYPES}
    return {value for kind in ENUMS for value in kind} | services | set(TOPICS) | about


def test_each_term_of_the_glossary_has_one_line_in_the_order_of_the_alphabet() -> None:
    assert [line for line in LINES if not LINE.fullmatch(line)] == []
    assert sorted(set(TERMS)) == TERMS


def test_every_word_of_the_language_stands_in_the_glossary() -> None:
    assert len(words_of_the_language()) > 50
    assert sorted(words_of_the_language() - set(TERMS)) == []


GIVEN_UP = (
    # Names of settings, as they were.
    *("waiting_jobs_most", "unacknowledged_most", "remember_jobs", "remember_ms", "array_most_running"),
    *("aging_most_ms", "start_wall_ms", "lease_wall_ms", "maintenance_lead_ms"),
    # Names in the code, as they were.
    *("TopologyWish", "ShareGang", "fair_line", "fair_clock", "score_board", "room_told", "shares_told", "quota_told"),
    *("DeferCode", "deferral", "Marks", "OverJob", "RunWord", "RunWords", "Stray", "walk_heads", "shape_of"),
    *("own_node", "entrances", "tending", "hearing"),
    # Words that users were shown.
    "is nothing of a quota",
)
"""Words that have a better one by now. One enters this list when it is gone, so that it does not come back."""

SUFFIXES = frozenset({".py", ".md", ".yaml", ".lua", ".toml"})


def texts() -> Iterator[Path]:
    """All code, tests and pages; the changelog tells what was called otherwise before."""
    for top in ("fallow", "services", "shared", "tests", "deploy", "docs", "examples"):
        yield from (path for path in sorted((TOP / top).rglob("*")) if path.suffix in SUFFIXES and path.is_file())
    yield from (TOP / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "pyproject.toml"))


def found_in(text: str) -> list[str]:
    """The words of this text that were given up, each as a whole word."""
    return re.findall(rf"(?<![\w]){GIVEN_UP_PATTERN}(?![\w])", text)


GIVEN_UP_PATTERN = f"({'|'.join(map(re.escape, GIVEN_UP))})"


def test_no_word_that_was_given_up_comes_back() -> None:
    own = Path(__file__).resolve()
    found = {path: found_in(path.read_text(encoding="utf-8")) for path in texts() if path.resolve() != own}
    assert {path.relative_to(TOP).as_posix(): words for path, words in found.items() if words} == {}


@pytest.mark.parametrize("word", GIVEN_UP)
def test_a_word_that_came_back_would_be_found(word: str) -> None:
    assert found_in(f"the {word} of") == [word]
    assert found_in(f"x{word}") == []


BOUND_AS_MOST = re.compile(r"\b(?!test_)(?:\w+_most|most_\w+|\w+_most_\w+|\w+_MOST|MOST_\w+|\w+_MOST_\w+)\b")
"""A bound's name ends in `_max`, with its unit before or behind: `bytes_max`, `max_running`."""


def test_no_name_of_a_bound_says_most_for_max() -> None:
    own = Path(__file__).resolve()
    found = {path: BOUND_AS_MOST.findall(path.read_text(encoding="utf-8")) for path in texts() if path.resolve() != own}
    assert {path.relative_to(TOP).as_posix(): names for path, names in found.items() if names} == {}


def test_a_bound_that_says_most_would_be_found() -> None:
    assert BOUND_AS_MOST.findall("TEXT_BYTES_MOST, most_running, waits_ms_most and at most") == [
        "TEXT_BYTES_MOST",
        "most_running",
        "waits_ms_most",
    ]
    assert BOUND_AS_MOST.findall("def test_it_waits_at_most_ten_seconds(") == []


RIDDLES = re.compile(r"\b(?:whoever|nobody|somebody|anybody|whom)\b", re.IGNORECASE)
"""Words that hide the subject: a sentence names it (`any reader`, `no job`, `the tenant`, `a standby`)."""

AS_ANOTHER = re.compile(r'"""The same\b')
"""A docstring that begins so says nothing without the one above it."""

MADE_OR_FOREIGN = frozenset({"deploy/asyncapi.yaml", "tests/executor/workers/test_worker_users.py"})
"""The titles of fields, made from their names, and the name of a Unix user."""

STILL_TO_CLEAN = (
    "services/loaning/",
    "services/placement/",
    "shared/cluster/",
    "tests/cluster/",
    "tests/loaning/",
    "tests/placement/",
)
"""Folders that may still hold such words. A folder leaves this list when it is clean; none comes back."""


def riddles_in(text: str) -> list[str]:
    """The words of this text that hide a subject, and the begins of docstrings that say `the same`."""
    return RIDDLES.findall(text) + AS_ANOTHER.findall(text)


def with_riddles() -> dict[str, list[str]]:
    """By path, what `riddles_in` finds in each text."""
    own = Path(__file__).resolve()
    found = {path: riddles_in(path.read_text(encoding="utf-8")) for path in texts() if path.resolve() != own}
    return {path.relative_to(TOP).as_posix(): words for path, words in found.items() if words}


def test_sentences_name_their_subjects_in_every_folder_that_is_clean() -> None:
    found = with_riddles()
    assert {
        path: words
        for path, words in found.items()
        if path not in MADE_OR_FOREIGN and not path.startswith(STILL_TO_CLEAN)
    } == {}


@pytest.mark.parametrize("folder", STILL_TO_CLEAN)
def test_a_folder_that_is_clean_has_left_the_list(folder: str) -> None:
    assert any(path.startswith(folder) for path in with_riddles()), f"{folder} is clean: take it off the list"


@pytest.mark.parametrize("text", ["Nobody waits.", "whoever asks", "for whom", '"""The same of a job."""'])
def test_a_sentence_without_a_subject_would_be_found(text: str) -> None:
    assert len(riddles_in(text)) == 1


def test_names_and_other_uses_of_the_same_are_no_such_sentences() -> None:
    assert riddles_in("of_nobody, for_whom: the same job; 'The same holds'") == []
