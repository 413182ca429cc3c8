"""No text of a command holds a character that a terminal obeys. What a node says is read whatever it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.cli.job.files.file import JobFileError, read_jobs
from fallow.shared.events import TYPES
from fallow.shared.events.base import Command, Event
from fallow.shared.events.codec.encoding import Undecodable, decode, encode
from fallow.shared.events.fields.values import JobSpec, ObservedRun, ProcessRun, RunStatus
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.events.nodes import (
    DeviceFailed,
    NodeLost,
    NodeReport,
    RunFailed,
    RunsReported,
    RunStatusUpdate,
)
from fallow.shared.events.submissions import SubmitJob
from tests.admission.commands import admitted, answer, bytes_of
from tests.hypothesis_profile import reaches, shared_among
from tests.strategies import values

COMMANDS = [cls for cls in TYPES.values() if cls.is_command]

CONTROL = [sign for sign in map(chr, range(0x110000)) if category(sign) == "Cc"]
"""C0, DEL and C1."""

ENDS_OF_LINES = ["\u2028", "\u2029"]
"""No terminal obeys them, but programs that read line by line take them for the end of one."""

HOSTILE = "cannot run in /srv/\x1b[2J\x1b]0;owned\a\x9b1m\x7f\r\u2028/work\n"

Path = tuple[str | int, ...]


def test_the_control_characters_are_those_that_unicode_names() -> None:
    assert len(CONTROL) == 32 + 1 + 32


def places(value: Any, path: Path = ()) -> Iterator[tuple[Path, bool]]:
    """Each text in the value, by its path; and whether it is the name of an entry."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key), True
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from places(inner, (*path, number))
    elif isinstance(value, str):
        yield path, False


def changed(value: Any, path: Path, sign: str, at: int, *, is_name: bool) -> Any:
    """The value with the sign in the text of that path."""
    if not path:
        return value[:at] + sign + value[at:]
    first, rest = path[0], path[1:]
    if isinstance(value, list):
        return [changed(each, rest, sign, at, is_name=is_name) if n == first else each for n, each in enumerate(value)]
    if is_name and not rest:
        return {(key[:at] + sign + key[at:] if key == first else key): each for key, each in value.items()}
    return {
        key: changed(each, rest, sign, at, is_name=is_name) if key == first else each for key, each in value.items()
    }


def is_handed_on(path: Path, *, is_name: bool) -> bool:
    """Whether the text is an argument or the value of a variable, as scripts are."""
    inner = path[path.index("run") + 1 :] if "run" in path else ()
    return not is_name and len(inner) == 2 and inner[0] in ("argv", "env")


def a_changed_one(data: st.DataObject, value: Any, signs: list[str]) -> tuple[Any, bool, str]:
    """The value with one sign more in one of its texts; whether that is handed on to a process; the sign."""
    path, is_name = data.draw(st.sampled_from(list(places(value))))
    at, sign = data.draw(st.integers(0, 8)), data.draw(st.sampled_from(signs))
    return changed(value, path, sign, at, is_name=is_name), is_handed_on(path, is_name=is_name), sign


@pytest.mark.parametrize("cls", COMMANDS, ids=lambda cls: cls.__name__)
def test_no_command_brings_a_control_character(cls: type[Command]) -> None:
    @shared_among(len(COMMANDS))
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        wish = json.loads(encode(data.draw(values(cls))))
        at, sign = data.draw(st.integers(0, 8)), data.draw(st.sampled_from(CONTROL))
        for path, is_name in places(wish):
            value = changed(wish, path, sign, at, is_name=is_name)
            found = decode(cls.type, json.dumps(value).encode())
            assert isinstance(found, Undecodable) or (is_handed_on(path, is_name=is_name) and sign in "\t\n"), value
            assert str(found).isprintable()

    holds()


PROCESS: dict[str, Any] = {
    "driver": "process",
    "argv": ["sh", "-c", "train\n\tnow"],
    "env": {"DATA": "/srv/a\n\t/srv/b"},
    "dir": "/srv/work",
    "checkpoint_dir": "/srv/kept",
}
JOB: dict[str, Any] = {
    "id": "job-1",
    "tenant": "pia",
    "pools": ["west-real"],
    "node_labels": ["zone=a"],
    "tolerations": ["old"],
    "after": [{"job": "first"}],
    "gpu_type": "h100",
    "run": PROCESS,
}


def test_a_script_of_several_lines_is_admitted() -> None:
    assert isinstance(admitted(bytes_of({"job": JOB})), JobAdmitted)


@given(st.data())
def test_a_job_with_a_control_character_is_refused_here_and_at_admission_unless_it_is_a_line_of_a_script(
    data: st.DataObject,
) -> None:
    job, is_handed_on, sign = a_changed_one(data, JOB, CONTROL)
    may_be = is_handed_on and sign in "\t\n"
    reaches("a control character stands in what a process is handed", is_handed_on)
    assert isinstance(answer(bytes_of({"job": job})), JobAdmitted) == may_be
    if may_be:
        assert len(read_jobs(json.dumps(job), "job.json")) == 1
        return
    with pytest.raises(JobFileError) as raised:
        read_jobs(json.dumps(job), "job.json")
    assert all(line.isprintable() for line in str(raised.value).split("\n"))


@given(st.data())
def test_a_name_or_a_path_ends_no_line_for_any_reader_either(data: st.DataObject) -> None:
    job, is_handed_on, _ = a_changed_one(data, JOB, ENDS_OF_LINES)
    assert isinstance(answer(bytes_of({"job": job})), JobAdmitted) == is_handed_on


ONE_LINE = "must be one line without control characters"
HANDED = "must hold no control characters but tab and newline"
VARIABLE = "the name of a variable must have a character, and neither '=' nor a control character"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"argv": ["a\x1b[31m"]}, f"run.argv[0] = 'a\\x1b[31m': {HANDED}"),
        ({"argv": ["a", "b\r\n"]}, f"run.argv[1] = 'b\\r\\n': {HANDED}"),
        ({"env": {"A": "\x9b2J"}}, f"run.env.A = '\\x9b2J': {HANDED}"),
        ({"env": {"A\x1b]0;x\x07": "x"}}, f"run.env = 'A\\x1b]0;x\\x07': {VARIABLE}"),
        ({"env": {"A\n": "x"}}, f"run.env = 'A\\n': {VARIABLE}"),
        ({"dir": "/x\n/y"}, f"run.dir = '/x\\n/y': {ONE_LINE}"),
        ({"dir": "/x\u2028"}, f"run.dir = '/x\\u2028': {ONE_LINE}"),
        ({"checkpoint_dir": "/c\x7f"}, f"run.checkpoint_dir = '/c\\x7f': {ONE_LINE}"),
    ],
)
def test_the_mistake_is_one_line_with_field_value_and_rule(change: dict[str, Any], told: str) -> None:
    job = JOB | {"run": PROCESS | change}
    with pytest.raises(JobFileError) as raised:
        read_jobs(json.dumps(job), "f")
    assert str(raised.value) == f"f: job 1 (job-1): {told}"
    rejected = answer(bytes_of({"job": job}))
    field, _, rest = told.partition(" = ")
    assert (rejected.field, rejected.rule) == (field, rest.partition("': ")[2])  # type: ignore[union-attr]
    assert f"'{rejected.value}'" == rest.partition(": " + rejected.rule)[0]  # type: ignore[union-attr]


IN: dict[str, Any] = {"cell": "main", "node": "n", "boot": "b", "seq": 1}
RUN: dict[str, Any] = {"job": "ada/a", "attempt": 1}
WORDS: list[Event] = [
    NodeLost(**IN, reason=HOSTILE),
    DeviceFailed(**IN, device=0, reason=HOSTILE),
    RunFailed(**IN, **RUN, infrastructure=True, text=HOSTILE),
    NodeReport(**IN, observed=(ObservedRun(**RUN, status=RunStatus.FAILED, text=HOSTILE),)),
    RunsReported(
        cell="main",
        words=(RunStatusUpdate(node="n", boot="b", seq=1, **RUN, status=RunStatus.FAILED, text=HOSTILE),),
    ),
]


@pytest.mark.parametrize("word", WORDS, ids=lambda word: type(word).__name__)
def test_what_a_node_says_of_a_path_is_read_whatever_it_holds(word: Event) -> None:
    assert decode(word.type, encode(word)) == word


def test_a_job_that_an_earlier_release_let_in_is_read_all_the_same() -> None:
    run = ProcessRun(argv=("a\x1b",), env={"A\x07": "\x1b"}, dir="/x\n")
    job = JobAdmitted(cell="main", spec=JobSpec(id="ada/a", tenant="ada", run=run), submit_ms=0, digest="0" * 32)
    assert decode(job.type, encode(job)) == job


def test_submissions_are_among_the_commands() -> None:
    assert SubmitJob in COMMANDS
