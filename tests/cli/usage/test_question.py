"""A question that is not answered is a no, in one line and without a traceback."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
import typer

import fallow.cli
from fallow.cli.node.end import _ask
from fallow.cli.question import agreed
from fallow.shared.view.row_text import node_row, node_text
from tests.cluster.worlds.examples import cell, node


class Terminal(io.StringIO):
    """Standard input of a person who answers with these words, or, without words, presses Ctrl-C."""

    def isatty(self) -> bool:
        return True

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override] # typeshed has bytes here
        if self.getvalue() == CTRL_C:
            raise KeyboardInterrupt
        return super().readline(size)


CTRL_C, CTRL_D = "\x03", ""


@pytest.mark.parametrize(("typed", "is_yes"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_an_answer_is_taken(typed: str, is_yes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    assert agreed("Sure?") is is_yes


@pytest.mark.parametrize(("typed", "code"), [(CTRL_C, 130), (CTRL_D, 1), ("n\n", 1)])
def test_a_question_that_is_not_agreed_to_ends_in_one_line_that_nothing_was_done(
    typed: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    row = node_row(node_text(cell(node("n1")).nodes["n1"]))
    with pytest.raises(typer.Exit) as ended:
        _ask([row])
    assert ended.value.exit_code == code
    assert capsys.readouterr().err.endswith("fallow: nothing was done\n")


def test_every_question_of_the_command_line_is_asked_in_one_place() -> None:
    folder = Path(fallow.cli.__file__).parents[1]
    asking = [
        path.name
        for path in sorted(folder.rglob("*.py"))
        if any(word in path.read_text() for word in ("typer.confirm(", "typer.prompt(", " input("))
    ]
    assert asking == ["question.py"]
