"""What a tenant or a node wrote is shown, and obeyed by no terminal."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cli.failures import say
from services.cli.output import print_json, print_line, print_table

HOSTILE = "\x1b[2J\x1b]0;owned\a\x9b1m\u202e\x7f\r\u2028done"


def are_shown(text: str) -> bool:
    return all(sign.isprintable() or sign == "\n" for sign in text)


@given(st.text())
def test_no_output_holds_a_sign_that_a_terminal_obeys(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        told: list[str] = []
        patch.setattr("sys.stdout", Collected(told))
        patch.setattr("sys.stderr", Collected(told))
        print_line(text)
        print_table(text, ("job", ">gpus", "words"), [(text, text, text)], spare=("words",))
        print_json({"text": text, text: [text]})
        say(text)
    assert are_shown("".join(told))


class Collected:
    """Standard output or error, kept."""

    encoding = "utf-8"

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def write(self, text: str) -> int:
        self._told.append(text)
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        return False


def test_hostile_words_are_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(f"worker 0 ended: {HOSTILE}")
    assert capsys.readouterr().out == ("worker 0 ended: \\x1b[2J\\x1b]0;owned\\x07\\x9b1m\\u202e\\x7f\\r\\u2028done\n")


@given(st.text())
def test_an_object_in_json_stays_the_same_object(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        told: list[str] = []
        patch.setattr("sys.stdout", Collected(told))
        print_json({"text": text})
    assert json.loads("".join(told)) == {"text": text}


def test_our_own_colours_before_a_line_stay(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("\x1b[31mred", mark="\x1b[32madmission |\x1b[0m ")
    assert capsys.readouterr().out == "\x1b[32madmission |\x1b[0m \\x1b[31mred\n"
