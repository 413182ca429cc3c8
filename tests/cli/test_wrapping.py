"""A long sentence breaks between words on a terminal, and nowhere else."""

from __future__ import annotations

import io

import pytest

from fallow.cli.output.wrapping import wrapped

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


def test_a_pipe_and_what_fits_get_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert wrapped(SENTENCE, io.StringIO()) == SENTENCE
    assert wrapped("short", Terminal()) == "short"
