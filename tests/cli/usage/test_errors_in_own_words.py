"""A file that cannot be read, and a value that a checker refuses, are told in our words, or in those of the system:
never in those of Python or of the library that found it.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fallow.cli.app import main
from fallow.cli.log.file import write_line, written_in_order
from fallow.shared.checker_words import in_our_words
from fallow.shared.log.admin.access_rules import AccessFileError, parse_access
from fallow.shared.log.admin.topics import TopicsFileError, parse_topics
from fallow.shared.runtime.errors.endings import WRONG_SETTINGS
from fallow.shared.runtime.files.table import LINE_CHARS_MAX
from tests.cli.worlds.logs import an_honest_log

FOREIGN = (
    *("codec", "Field required", "Input should", "Extra inputs", "unable to parse", " b'", "Errno", "Traceback"),
    *("should have", "should match", "Value error", "valid dictionary", "Not a gzipped", "CRC check", "Error("),
    *("recursion", "constructor", "tag:yaml.org", "EOF", "None", "True", "special characters", "hex escape"),
)

CELL = "cells: [{name: main, ordinal: 0, pools: [{name: virtual, gpus: 64}]}]\ntenants: [{name: vision}]\n"
JOB = "id: a\ntenant: vision\n"
MANY = "[" * 100_000 + "]" * 100_000
NO_SUCH_CHARACTER = "a file of YAML holds no such character; in quotes it may be written"
NO_UTF8 = "half of a pair of surrogates is no character, and cannot be written as UTF-8"
CASE = {"id": "a", "name": "a", "cluster": {"nodes": []}, "queues": []}
NODE = {"cell": "main", "node": {"id": "n1", "pool": "virtual", "gpus": 8}}
ENTRY = {"node": "n1", "job": "a", "attempt": 1, "event": "started"}
LOG_LINE: Mapping[str, object] = {"offset": 0, "value": None, "headers": [], "end": 1}
JOBS = b"job_id,tenant,submit_s,gpus,duration_s\na,t,0,1,1\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"

NO_TEXT = b"\xff\xfe"
RANDOM = b"\xd4\x72" + Random(1).randbytes(198)
TABLE = (
    "job_id,tenant,submit_s,gpus,duration_s,node_id,cpus,memory_gib,gpu_type,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
)
LINES = TABLE + "".join(f"a{number},t,0,1,1,n{number},1,1,,1,1,1,1000\n" for number in range(3_000))
PACKED = gzip.compress(LINES.encode())
PACKED_LINE = gzip.compress(Random(2).randbytes(2_000).hex().encode())

FILES = {
    "verify": ("verify", "--file", "{file}"),
    "import": ("snapshot", "import", "{file}"),
    "jobs": ("simulate", "--nodes", "4", "--jobs", "{file}"),
    "nodes": ("simulate", "--jobs", "{good}", "--nodes", "{file}"),
    "pods": ("bench", "openb", "--nodes", "{good}", "--pods", "{file}"),
    "case": ("case", "{file}"),
    "cell": ("cell", "check", "{file}"),
    "submit": ("submit", "{file}"),
    "quotas": ("quota", "set", "--file", "{file}"),
    "up": ("up", "--nodes-file", "{file}"),
    "diaries": ("verify", "--file", "{good}", "--diaries", "{folder}"),
    "passwords": ("view", "users", "--passwords", "{folder}"),
}
"""Each command line that reads a file which people, or another program, wrote."""

IS_NO_TEXT = dict.fromkeys(FILES, "is not UTF-8 text") | {
    "import": "is no exported cell",
    "diaries": "is no JSON",
}

Told = Callable[..., str]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """What a command line says of a file with these bytes."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"CELL_FILE": "cell.yaml", "KAFKA": "127.0.0.1:1", "REDIS": "redis://127.0.0.1:1/0"}.items():
        monkeypatch.setenv(f"FALLOW_{name}", value)
    (tmp_path / "cell.yaml").write_text(CELL)

    def tell(command: str, content: bytes, name: str = "given", shown: str = "") -> str:
        file = tmp_path / {"diaries": "n1.jsonl", "passwords": "admin"}.get(command, name)
        file.write_bytes(content)
        good = tmp_path / "good"
        good.write_text(LINES)
        if command == "diaries":
            with written_in_order(good) as output:
                for record in an_honest_log().records:
                    write_line(output, record, len(an_honest_log().records))
        words = [word.format(file=file, good=good, folder=tmp_path) for word in FILES[command]]
        monkeypatch.setattr("sys.argv", ["fallow", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr().err.splitlines()
        assert (ended.value.code, len(said)) == (2, 1), said
        assert (shown or file.name) in said[0], said
        assert [word for word in FOREIGN if word in said[0]] == [], said
        return said[0]

    return tell


@pytest.mark.parametrize("command", FILES)
def test_a_file_that_is_no_text(command: str, told: Told) -> None:
    assert IS_NO_TEXT[command] in told(command, NO_TEXT + (b"\n" if command == "diaries" else b""))


@pytest.mark.parametrize("command", ["verify", "import", "jobs", "nodes", "pods"])
@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (lambda _: RANDOM, "is no gzip file"),
        (lambda _: NO_TEXT, "is no gzip file"),
        (lambda _: b"\x1f", "is a damaged gzip file"),
        (lambda packed: packed[:-40], "is a damaged gzip file"),
        (lambda packed: packed[:400] + b"\xff" * 40 + packed[440:], "is a damaged gzip file"),
        (lambda packed: packed[:-8] + bytes(4) + packed[-4:], "is a damaged gzip file"),
    ],
    ids=["random", "two bytes", "one byte", "cut short", "a hole", "a wrong checksum"],
)
def test_a_packed_file_that_is_none_or_is_damaged(
    command: str, content: Callable[[bytes], bytes], rule: str, told: Told
) -> None:
    packed = PACKED_LINE if command in ("verify", "import") else PACKED
    assert told(command, content(packed), "given.gz").endswith(f"cannot be read: {rule}")


def test_what_stands_behind_a_packed_file_is_damage_of_it(told: Told) -> None:
    packed = gzip.compress(json.dumps(LOG_LINE).encode() + b"\n")
    assert told("verify", packed + b"more", "given.gz").endswith("cannot be read: is a damaged gzip file")


def test_a_packed_file_that_is_no_text(told: Told) -> None:
    for command in ("verify", "jobs"):
        assert told(command, gzip.compress(NO_TEXT), "given.gz").endswith("cannot be read: is not UTF-8 text")


def test_a_field_of_a_table_that_is_too_long(told: Told) -> None:
    long = JOBS + b"a," + b"t" * 200_000 + b",0,1,1\n"
    assert told("jobs", long).endswith("cannot be read: a field has more than 131072 characters")


def test_a_table_of_one_line_is_refused_before_all_of_it_is_read(told: Told) -> None:
    """Of a packed file of a few kilobytes."""
    line = b"a," * (LINE_CHARS_MAX // 2) + b"a\n"
    packed = gzip.compress(line + b"x" * 4 * LINE_CHARS_MAX)
    assert told("jobs", packed, "given.gz").endswith("cannot be read: a line has more than 1048576 characters")


def test_a_line_behind_the_first_may_be_no_longer(told: Told) -> None:
    assert told("jobs", JOBS + b"a," * LINE_CHARS_MAX).endswith(
        "cannot be read: a line has more than 1048576 characters"
    )


def test_a_column_that_stands_twice_is_refused(told: Told) -> None:
    told_of = told("jobs", b"job_id," + JOBS)
    assert told_of.endswith("cannot be read: two columns are named 'job_id'")


def test_a_table_without_a_head(told: Told) -> None:
    assert told("jobs", b"").endswith("column job_id is missing; it has none")
    assert told("jobs", b"id,gpus\n").endswith("column job_id is missing; there are id, gpus")


def _without(whole: Mapping[str, object], field: str) -> bytes:
    return json.dumps({name: value for name, value in whole.items() if name != field}).encode() + b"\n"


def _with(whole: Mapping[str, object], **fields: object) -> bytes:
    return json.dumps({**whole, **fields}).encode() + b"\n"


@pytest.mark.parametrize(
    ("command", "content", "rule"),
    [
        ("case", b"jobs: 3\n", "id: is missing"),
        ("case", _with(CASE, cluster=3), "cluster: must be a mapping of fields"),
        ("case", _with(CASE, queues=3), "queues: must be a list"),
        ("case", _with(CASE, tier="x"), "tier: must be 'core' or 'extended'"),
        ("case", _with(CASE, queues=[{"name": "q", "weight": "much"}]), "queues.0.weight: must be a whole number"),
        ("case", _with(CASE, jobs=3), "jobs: is no key of a case"),
        ("cell", CELL.replace("name: main, ", "").encode(), "cells[0].name: is missing"),
        ("cell", CELL.replace("gpus: 64", "gpus: many").encode(), "gpus = 'many': must be a whole number"),
        ("cell", CELL.replace("gpus: 64", "gpus: 0").encode(), "gpus = 0: must be at least 1"),
        ("cell", CELL.replace("main", "Main").encode(), "name = 'Main': must be 1 to 63 of a to z, 0 to 9 and '-',"),
        ("cell", b"cells: []\ntenants: [{name: a}]\n", "cells: must have at least 1 item"),
        ("cell", CELL.replace("ordinal: 0", "ordinal: 0, polcy: {}").encode(), "unknown field (did you mean policy?)"),
        ("up", _without(NODE, "node"), "line 1: node: is missing"),
        ("up", _with(NODE, node={"id": "n1", "pool": "p", "gpus": "8"}), "node.gpus = '8': must be a whole number"),
        ("up", _with(NODE, x=1), "line 1: x = 1: unknown field"),
        ("up", b"[\n", "line 1: the line: is no JSON"),
        ("diaries", _without(ENTRY, "job"), "line 1: job: is missing"),
        ("diaries", _with(ENTRY, attempt="1"), "line 1: attempt: must be a whole number"),
        ("diaries", b"[3]\n", "line 1: the line: must be a mapping of fields"),
        ("diaries", b"{\n", "line 1: is no JSON"),
        ("verify", _without(LOG_LINE, "value"), "value: is missing"),
        ("verify", _with(LOG_LINE, offset="0"), "offset: must be a whole number"),
        ("verify", b"{\n", "is no JSON"),
        ("quotas", b"- {limit: 3}\n", "quotas[0].tenant: is missing"),
        ("quotas", b"- {tenant: vision, limit: much}\n", "quotas[0].limit = 'much': must be a whole number"),
        ("quotas", b"- {tenant: vision, limt: 3}\n", "quotas[0].limt = 3: unknown field"),
        ("quotas", b"- 3\n", "quotas[0] = 3: must be a mapping of fields"),
        ("submit", b"{tenant: vision}\n", "id: is missing"),
        ("submit", b"{id: a, tenant: vision, workers: many}\n", "workers = 'many': must be a whole number"),
        ("submit", b"{id: a, tenant: vision, worker: 1}\n", "worker = 1: unknown field"),
        ("cell", CELL.replace("ordinal: 0", "ordinal: yes").encode(), "ordinal = true: must be a whole number"),
        ("cell", CELL.replace("main", "~").encode(), "name = null: must be text"),
        ("submit", f"{JOB}workers: yes\n".encode(), "workers = true: must be a whole number"),
        ("submit", f"{JOB}workers: ~\n".encode(), "workers = null: must be a whole number"),
        ("submit", f"{JOB}workers: .inf\n".encode(), "workers = .inf: must be a whole number"),
        ("submit", b"- [yes, ~]\n", "(got [true, null])"),
        ("quotas", b"- {tenant: vision, limit: yes}\n", "quotas[0].limit = true: must be a whole number"),
        ("verify", b"null\n", "must be a mapping of fields (got null)"),
        ("verify", _with(LOG_LINE, offset=True), "offset: must be a whole number (got true)"),
        ("nodes", b"node_id,gpus\nn1,99999\n", "gpus = 99999: must be at most 4096"),
        ("pods", f"{PODS}p,1,1,one,1000,\n".encode(), "line 2: not a pod: num_gpu = 'one': must be a whole number"),
        ("pods", b"name\np\n", "line 2: not a pod: num_gpu is missing"),
    ],
)
def test_a_field_that_is_missing_wrong_or_unknown(command: str, content: bytes, rule: str, told: Told) -> None:
    assert rule in told(command, content, "given.yaml" if command in ("case", "cell") else "given")


@pytest.mark.parametrize(
    ("command", "content", "rule"),
    [
        ("submit", f'{{"id": "a", "after": {MANY}}}\n{{"id": "b"}}\n', "line 1: nested in too many levels"),
        ("verify", json.dumps(LOG_LINE)[:-1] + f', "key": {MANY}}}\n', "is nested in too many levels"),
        ("up", MANY, "line 1: the line: is nested in too many levels"),
        ("verify", json.dumps(LOG_LINE) + "\n\n", "line 2: is no record of an exported log: is empty"),
        ("verify", "{\n", "line 1: is no record of an exported log: is no JSON: it is cut short"),
        ("verify", '{"offset": 0, "value": "\\ud800", "headers": []}\n', f"is no JSON: {NO_UTF8}"),
        ("submit", f"{JOB}queue: !!set {{a, b}}\n", "line 3: the tag !!set cannot be used: leave it out"),
        ("submit", f"{JOB}queue: !!binary aGk=\n", "line 3: the tag !!binary cannot be used: leave it out"),
        ("submit", f"{JOB}a: !!python/name:os.system\n", "line 3: the tag !!python/name:os.system cannot be used"),
        ("submit", f"{JOB}queue: !foo a\n", "line 3: the tag !foo cannot be used: leave it out"),
        ("cell", f"{CELL}limits: !foo a\n", "line 3: the tag !foo cannot be used: leave it out"),
        ("quotas", "- !!set {a}\n", "line 1: the tag !!set cannot be used: leave it out"),
        ("submit", f"{JOB}queue: a\0b\n", f"line 3: '\\x00': {NO_SUCH_CHARACTER} \\x00"),
        ("submit", f"id: \x1b[31m\n{JOB}", f"line 1: '\\x1b': {NO_SUCH_CHARACTER} \\x1b"),
        ("cell", f"{CELL}limits: \x1b\n", f"line 3: '\\x1b': {NO_SUCH_CHARACTER} \\x1b"),
    ],
    ids=lambda given: given[:40].replace("\0", "NUL") if isinstance(given, str) else None,
)
def test_what_no_reader_of_such_a_file_takes(command: str, content: str, rule: str, told: Told) -> None:
    assert rule in told(command, content.encode())


HALVES = [
    ('"run":{"driver":"process","argv":["a\\ud800b"]}', "run.argv[0]", "a\\ud800b"),
    ('"run":{"driver":"process","argv":["a"],"env":{"\\udc00":"b"}}', "run.env", "\\udc00"),
    ('"\\ud800":1', "", "\\ud800"),
    ('"after":["\\ude00"]', "after[0]", "\\ude00"),
]


@pytest.mark.parametrize(("content", "field", "value"), HALVES)
def test_half_of_a_pair_of_surrogates_in_a_job_is_told_with_its_field(
    content: str, field: str, value: str, told: Told
) -> None:
    line = f'{{"id":"a","tenant":"vision",{content}}}'
    at = f"{field}: " if field else ""
    assert f"line 1: {at}'{value.strip('ab')}': {NO_UTF8}" in told("submit", line.encode())
    at = f"{field} = " if field else ""
    assert f"job 1 (a): {at}'{value}': {NO_UTF8}" in told(
        "submit", f'{line}\n{{"id":"b","tenant":"vision"}}\n'.encode()
    )


@pytest.mark.parametrize("argument", ['"a\\0b"', "a" * 8_193])
def test_a_mistake_in_an_item_is_told_alone(argument: str, told: Told) -> None:
    assert "run.argv[0] = " in told("submit", f"{JOB}run: {{driver: process, argv: [{argument}]}}\n".encode())


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{}", "topics file: topics: is missing"),
        ("topics: {jobs: {cleanup: delete}}", "topics file: topics.jobs.partitions: is missing"),
        ("topics: 3", "topics file: topics = 3: must be a mapping"),
        ("topics: {}\nmore: 3", "topics file: more = 3: unknown field"),
        ("[]", "topics file: must be a mapping of fields (got [])"),
    ],
)
def test_a_file_of_topics(text: str, line: str) -> None:
    with pytest.raises(TopicsFileError) as refused:
        parse_topics(text)
    assert line in str(refused.value).splitlines()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{}", "access file: principals: is missing"),
        ("principals: {a: {reads: [jobs]}}", "access file: principals.a.reads: unknown field"),
        ("principals: {a: {write: all}}", "access file: principals.a.write = 'all': must be a list"),
        ("[]", "access file: must be a mapping of fields (got [])"),
    ],
)
def test_a_file_of_rights(text: str, line: str) -> None:
    with pytest.raises(AccessFileError) as refused:
        parse_access(text, {"jobs"})
    assert line in str(refused.value).splitlines()


def test_the_secret_of_a_service(tmp_path: Path) -> None:
    (tmp_path / "fallow_redis").write_bytes(NO_TEXT)
    secrets = {"FALLOW_SECRETS_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-m", "tests.runtime.process.tiny_service"]
    ended = subprocess.run(command, env={**os.environ, **secrets}, capture_output=True, text=True, check=False)
    rule = f"{tmp_path}/fallow_redis: cannot be read: is not UTF-8 text"
    assert (ended.returncode, ended.stderr.splitlines()[1:]) == (WRONG_SETTINGS, [f"FALLOW_REDIS: {rule}"])


class A(BaseModel):
    """One of two kinds."""

    of: Literal["a"]


class B(BaseModel):
    """The other one."""

    of: Literal["b"]


class Part(BaseModel):
    """One field for each kind of value that our models have."""

    model_config = ConfigDict(extra="forbid")

    whole: int = 1
    strict: Annotated[int, Field(strict=True, ge=1, le=4)] = 1
    broken: Annotated[float, Field(gt=0, lt=9, allow_inf_nan=False)] = 1
    text: Annotated[str, Field(min_length=2, max_length=3)] = "ab"
    named: Annotated[str, Field(pattern="^[a-z]+$")] = "a"
    switch: bool = True
    some: Annotated[tuple[int, ...], Field(min_length=1, max_length=2)] = (1,)
    more: list[str] = []
    once: frozenset[str] = frozenset()
    table: dict[str, int] = {}
    choice: Literal["a", "b"] = "a"
    part: Part | None = None
    nothing: None = None
    kind: Annotated[A | B, Field(discriminator="of")] | None = None


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"whole": "x"}, "must be a whole number"),
        ({"whole": 1.5}, "must be a whole number"),
        ({"whole": "9" * 5_000}, "has too many digits"),
        ({"strict": True}, "must be a whole number"),
        ({"strict": 0}, "must be at least 1"),
        ({"strict": 5}, "must be at most 4"),
        ({"broken": "x"}, "must be a number"),
        ({"broken": 0}, "must be greater than 0"),
        ({"broken": 9}, "must be less than 9"),
        ({"broken": 1e999}, "must be a finite number"),
        ({"text": 1}, "must be text"),
        ({"text": ""}, "must have at least 2 characters"),
        ({"text": "abcd"}, "must have at most 3 characters"),
        ({"named": "A"}, "must match '^[a-z]+$'"),
        ({"switch": "perhaps"}, "must be true or false"),
        ({"some": 3}, "must be a list"),
        ({"some": []}, "must have at least 1 item"),
        ({"some": [1, 2, 3]}, "must have at most 2 items"),
        ({"more": 3}, "must be a list"),
        ({"once": 3}, "must be a list"),
        ({"table": 3}, "must be a mapping"),
        ({"choice": "c"}, "must be 'a' or 'b'"),
        ({"part": 3}, "must be a mapping of fields"),
        ({"nothing": 3}, "must be null"),
        ({"other": 3}, "unknown field"),
        ({"kind": {}}, "must have the field 'of'"),
        ({"kind": {"of": "c"}}, "'of' is 'c', and must be one of 'a', 'b'"),
        (3, "must be a mapping of fields"),
    ],
)
def test_what_the_checker_says_of_each_kind_of_value(given: object, rule: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Part.model_validate(given)
    assert in_our_words(refused.value.errors()[0]["msg"]) == rule


def test_what_a_check_of_ours_says_stays_as_it_is() -> None:
    assert in_our_words("Value error, Input should be as it was") == "Input should be as it was"


@pytest.mark.parametrize("command", [name for name in FILES if name not in ("diaries", "passwords")])
def test_a_file_whose_name_has_an_end_of_line_is_told_in_one(command: str, told: Told) -> None:
    assert "a\\nb" in told(command, NO_TEXT, "a\nb", shown="a\\nb")


def test_a_machine_without_room_for_a_file_is_told_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text('{"id":"a","env":[' + "{}," * 6_000_000 + "{}]}")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (600 * 2**20,) * 2)"
    code = f"{limit}; from fallow.cli.entry import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "submit", str(file)], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (2, "fallow: there is not enough memory for this\n")
