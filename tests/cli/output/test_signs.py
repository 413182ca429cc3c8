"""What a tenant or a node wrote is shown, and obeyed by no terminal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.cli.errors.failures import say, say_error
from fallow.cli.job.files.file import JobFileError, read_jobs
from fallow.cli.output.output import print_json, print_line, print_table
from fallow.shared.log.port import LogUnavailable
from fallow.shared.runtime.files.cell_file import CellFileError
from fallow.shared.runtime.logs import rendering
from fallow.shared.runtime.settings import LogFormat
from tests.hypothesis_profile import reaches

HOSTILE = "\x1b[2J\x1b]0;owned\a\x9b1m\u202e\x7f\r\u2028done\nversion 9, epoch 1"


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
    reaches("a text has a sign that a terminal obeys", not are_shown(text))
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
    assert capsys.readouterr().out == (
        "worker 0 ended: \\x1b[2J\\x1b]0;owned\\x07\\x9b1m\\u202e\\x7f\\r\\u2028done\\nversion 9, epoch 1\n"
    )


@given(st.text())
def test_what_somebody_wrote_begins_no_line_of_its_own(text: str) -> None:
    reaches("a text goes on in another line", len(f"{text}.".splitlines()) > 1)
    with pytest.MonkeyPatch.context() as patch:
        told: list[str] = []
        patch.setattr("sys.stdout", Collected(told))
        patch.setattr("sys.stderr", Collected(told))
        for tell in (print_line, say, lambda words: say_error(LogUnavailable(words), words)):
            told.clear()
            tell(text)
            assert "".join(told).count("\n") == 1


def test_an_end_of_line_in_a_cell_or_title_of_a_table_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("jobs\nof ada", ("JOB", "REMARK"), [("a", "x\nb  ada  running")])
    out = capsys.readouterr().out
    assert ("jobs\\nof ada\n" in out, "x\\nb  ada  running" in out) == (True, True)


def test_of_an_error_that_tells_several_mistakes_each_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    say_error(CellFileError("one\ntwo"), "fallow: one\ntwo")
    assert capsys.readouterr().err == "fallow: one\ntwo\n"


def test_so_it_is_of_an_error_that_is_a_kind_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    class OneOfThem(CellFileError):
        """A mistake of its own."""

    say_error(OneOfThem("one\ntwo"), "one\ntwo")
    assert capsys.readouterr().err == "one\ntwo\n"


def test_a_key_of_a_job_file_begins_no_line_of_its_own() -> None:
    with pytest.raises(JobFileError) as raised:
        read_jobs('{id: a, tenant: t, "x\\nfallow: forged": 1}', "job.yaml")
    assert str(raised.value).count("\n") == 0


def test_a_log_line_for_people_is_one_line() -> None:
    event = {"event": "a run failed", "reason": "x\nplacement | forged"}
    rendered: Any = event
    for step in rendering(LogFormat.CONSOLE)[1:]:
        rendered = step(None, "info", rendered)
    assert "\n" not in rendered


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
