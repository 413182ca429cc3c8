"""A long sentence breaks between words on a terminal, and nowhere else."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest
from rich.cells import cell_len

from fallow.cli.log.diff import Change, Portrait
from fallow.cli.log.diff import _tell as tell_diff
from fallow.cli.log.log import print_decision
from fallow.cli.log.why import Step, Why
from fallow.cli.log.why import _print as tell_why
from fallow.cli.output.wrapping import wrapped
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import JobHeld

SENTENCE = "  job hello waits: " + "no node has as many GPUs free as it wants, " * 4


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_no_word_is_cut_and_what_follows_is_set_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = wrapped(SENTENCE, Terminal()).split("\n")
    assert len(lines) > 3
    assert all(len(line) <= 40 for line in lines)
    assert [word for line in lines for word in line.split()] == SENTENCE.split()
    assert all(line.startswith("    ") for line in lines[1:])
    assert wrapped("x" * 100, Terminal()) == "x" * 100


def test_signs_that_take_two_columns_count_as_two_as_they_do_in_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = wrapped("  " + "工作等待 " * 12, Terminal()).split("\n")
    assert len(lines) > 2
    assert all(cell_len(line) <= 40 for line in lines)


def test_a_pipe_and_what_fits_get_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert wrapped(SENTENCE, io.StringIO()) == SENTENCE
    assert wrapped("short", Terminal()) == "short"


WORDS = "no node has as many GPUs free as it wants, " * 4
NOTHING = Portrait(1, 0, {kind: {} for kind in ("jobs", "nodes", "quotas", "use", "policy")})
HELD = Decision(cell="main", version=1, epoch=1, at_ms=0, effects=(JobHeld(job="vision/hello", reason=WORDS),))


@pytest.mark.parametrize(
    "tell",
    [
        lambda: print_decision(HELD),
        lambda: tell_diff(NOTHING, NOTHING, [Change("jobs", "vision/hello", None, WORDS)], 1),
        lambda: tell_why("main", Why("vision/hello", [Step(1, 0, 1, (WORDS,))]), as_json=False),
    ],
)
def test_so_do_the_sentences_of_the_log(tell: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    tell()
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(WORDS.split()) in " ".join(screen.getvalue().split())
