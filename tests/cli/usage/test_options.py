"""Every option and argument of every command: a value that it cannot have is one line with its name, the value and the
rule, and exit code 2, before anything is asked or started. Nothing that is typed is a traceback.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from fallow.cli.app import COMMANDS, LazyGroup, main, servers_given
from fallow.cli.arguments import paths
from fallow.cli.cell.policy import _read
from fallow.cli.errors.failures import Exit, without_address
from fallow.cli.output.when import DURATION_RULE
from fallow.local.data_folder import held
from fallow.shared.events.validation.rules_told import ID_RULE, JOB_RULE
from fallow.shared.runtime.addresses import without_password

DIGITS = "9" * 5_000
LINE_CHARS_MAX = 1_000
"""The rule of an option, and a value that is cut: a few values name every choice that there is."""

NO_TEXT = "n\udcff"
"""As Python hands over an argument with a byte that is no UTF-8."""
HOSTILE = ["", " ", "-", "--", "a b", "../x", "ä\n\x1b[31m", "x" * 3_000, DIGITS, "²", "*", ":", "=", ",", NO_TEXT]

WRONG_PATHS = {
    paths.file_to_read.__name__: ["nofile", "."],
    paths.folder_to_read.__name__: ["nofolder", "file"],
    paths.file_to_write.__name__: ["nofolder/x", "file/x", "."],
    paths.to_write_in_order.__name__: ["nofolder/x", "file/x", "."],
    paths.folder_to_write.__name__: ["file", "file/x"],
}

NEEDED = {
    "agent": ("--node", "n", "--pool", "process", "--gpus", "1"),
    "replay": ("--jobs", "{file}", "--nodes", "4"),
    "simulate": ("--jobs", "{file}", "--nodes", "4"),
    "bench openb": ("--pods", "{file}", "--nodes", "{file}"),
    "bench aryl": ("--jobs", "{file}", "--demand", "{file}:busy"),
    "quota set": ("--guaranteed", "1"),
    "node maintain": ("--until", "1h"),
}
"""Options without which a command is wrong use already."""

ARGUMENTS = {"file": "{job}", "files": "{file}", "workers": "1", "version": "1", "offset": "1", "offsets": "1"} | {
    "when": "1", "earlier": "1", "later": "2", "settings": "aging_ms=1", "name": "placement"
}  # fmt: skip
"""A good value for each argument that is no name."""

WORKS = ("up", "demo", "replay", "feed", "service", "agent", "faults", "case", "simulate", "bench")
"""Commands that would begin to work: they are given nothing but wrong values."""

WORDS = ["a fan that makes noise \x1b[2J", "a fan that makes noise\n", "x" * 501]

WRONG = {
    "up --replicas": ["placement", "x=1", f"placement={DIGITS}", "placement=-1", "placement=²", "placement=1000"],
    "replay --nodes": ["nofile", "0", "-1", DIGITS, "²"],
    "simulate --nodes": ["nofile", "0", "-1", DIGITS, "²"],
    "simulate --policy": ["nonsense"],
    "simulate --estimates": ["nonsense", "limits:0.9", "noise:x"],
    "bench a1 --case": ["nonsense"],
    "bench kant --policy": ["nonsense"],
    "bench kant --estimates": ["nonsense", "limits:0.9", "noise:x"],
    "bench pipeline --placement": ["nonsense"],
    "bench latency --placement": ["nonsense"],
    "submit --after": ["a:when"],
    "cancel --reason": WORDS,
    "job cancel --reason": WORDS,
    "node cordon --reason": WORDS,
    "node drain --reason": WORDS,
    "node maintain --reason": WORDS,
    "node lost --reason": WORDS,
    "node drain --within": ["soon", "-1s", DIGITS + "s"],
    "node maintain --from": ["soon", "-1s", "2026-13-01 12:30"],
    "node maintain --until": ["soon", "-1s"],
    "quota set --guaranteed": ["much", "-1", DIGITS],
    "quota set --limit": ["much", "-1", DIGITS],
    "quota set --borrow-limit": ["much", "-1", DIGITS],
    "quota set --lend-limit": ["much", "-1", DIGITS],
    "quota set --min-run": ["long", "-1s"],
    "policy set settings": ["nonsense", "aging_ms=x", "nonsense=1", "reservations_max"],
    "metrics --at": ["once", DIGITS],
    "metrics --since": ["once", DIGITS],
    "log at when": ["once", DIGITS, "0001-01-01T00:00:00+14:00", "1970-01-01", "1973-03-03 09:46Z"],
    "log diff earlier": ["once", DIGITS],
    "log diff later": ["once", DIGITS],
    "dead-letters list --reason": ["nonsense"],
    "dead-letters replay --reason": ["nonsense"],
    "service name": ["nonsense"],
    "agent --node": ["", "a b", "x" * 3_000],
    "agent --pool": ["nonsense"],
    "agent --cell": ["moon"],
    "agent --gpus": ["-1", "x", DIGITS, "²"],
    "agent --label": ["x", "=x"],
    "faults --faults": ["nonsense"],
    "faults --mutant": ["nonsense"],
    "faults --keep": ["nonsense", f"{DIGITS}/1", "²/1"],
    "feed --name": ["a b", "x" * 3_000],
    "bench openb --policy": ["nonsense"],
    "bench openb --draw": ["nonsense"],
    "bench aryl --demand": ["nofile:busy", "busy", ":busy", "file:"],
    "bench aryl --scenario": ["nonsense"],
    "bench aryl --policy": ["nonsense"],
    "bench kant --traces": ["nofolder"],
    "bench kant --trace": ["nonsense"],
}
"""Words with a meaning, and some that have none."""


CELL_FILE = """
cells: [{name: main, ordinal: 0, pools: [{name: virtual, gpus: 64}, {name: process, gpus: 8, driver: process}]}]
tenants: [{name: vision}]
"""


@dataclass(frozen=True)
class Given:
    """One option or argument of one command."""

    command: str
    param: Any

    @property
    def name(self) -> str:
        return str(max(self.param.opts, key=len)) if self.is_option else str(self.param.name)

    @property
    def is_option(self) -> bool:
        return bool(self.param.param_type_name == "option")

    @property
    def type(self) -> Any:
        """What one value is."""
        declared = self.param.type_descriptor.annotation
        return get_args(declared)[0] if get_args(declared) else declared

    def words(self, value: str, folder: Path) -> list[str]:
        """The command line that gives this value, and everything else that is needed."""
        found = self.command.split()
        for param in params_of(self.command):
            if param.param_type_name == "argument" and param.name != self.param.name and is_needed(self, param):
                found.append(ARGUMENTS.get(param.name, "some-name"))
            elif param is self.param and not self.is_option:
                found.append(value)
        needed = NEEDED.get(self.command, ())
        for option, own in zip(needed[::2], needed[1::2], strict=True):
            found += [] if option == self.name else [option, own]
        found += [self.name, value] if self.is_option else []
        return [word.format(file=folder / "file", job=folder / "job.yaml") if "{" in word else word for word in found]


def is_needed(given: Given, param: Any) -> bool:
    return bool(param.required) or (given.command == "quota set" and given.name != "--file")


def leaves() -> Iterator[tuple[str, Any]]:
    def below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        if hasattr(command, "commands"):
            for name, each in command.commands.items():
                yield from below(f"{words} {name}", each)
        else:
            yield words, command

    for name, (module, _) in COMMANDS.items():
        single = importlib.import_module(f"fallow.{module}").app
        single._add_completion = False
        yield from below(name, typer.main.get_command(single))


LEAVES = dict(leaves())
ALL = [Given(words, param) for words, command in LEAVES.items() for param in command.params if param.name != "help"]


def params_of(command: str) -> list[Any]:
    return list(LEAVES[command].params)


def cases(*types: type) -> list[Any]:
    return [pytest.param(each, id=f"{each.command} {each.name}") for each in ALL if each.type in types]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place with one job in it, from which nothing can be reached."""
    (tmp_path / "file").write_text("")
    (tmp_path / "job.yaml").write_text("{id: a, tenant: vision}")
    for name, value in {"KAFKA": "127.0.0.1:1", "REDIS": "redis://127.0.0.1:1/0", "NAMESPACE": "options"}.items():
        monkeypatch.setenv(f"FALLOW_{name}", value)
    (tmp_path / "cell.yaml").write_text(CELL_FILE)
    monkeypatch.setenv("FALLOW_CELL_FILE", "cell.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ends(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command line. Anything but an exit would be a traceback."""
    monkeypatch.setattr(sys, "argv", ["fallow", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def is_refused(
    words: list[str],
    name: str,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    said: pytest.CaptureFixture[str],
    rule: str = "",
) -> bool:
    """Whether the command line ends as wrong use, in one line that names the option, the value and the rule."""
    code, told = ends(words, monkeypatch), said.readouterr()
    lines = told.err.splitlines()
    assert (code, len(lines), told.out) == (2, 1, ""), (code, told)
    assert lines[0].startswith("fallow"), lines
    assert len(lines[0]) < LINE_CHARS_MAX, lines
    assert name.startswith("-") is False or name in lines[0], lines
    assert shown[:20] in lines[0], lines
    return rule in lines[0]


@pytest.mark.parametrize("given", cases(Path))
def test_a_path_is_checked_before_anything_else(
    given: Given, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert given.param.callback is not None, "a path has one of the callbacks in fallow/cli/arguments/paths.py"
    for value in WRONG_PATHS[given.param.callback.__name__]:
        assert is_refused(given.words(value, folder), given.name, value, monkeypatch, capsys)


@pytest.mark.parametrize("given", cases(int, float))
def test_a_number_out_of_its_bounds_is_told(
    given: Given, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ["x", "1e", "²"]
    wrong += [str(given.param.min - 1)] if given.param.min is not None and given.is_option else []
    wrong += [str(given.param.max + 1)] if given.param.max is not None else []
    wrong += ["nan"] if given.type is float else [DIGITS, "1.5"]
    for value in wrong:
        assert is_refused(given.words(value, folder), given.name, value, monkeypatch, capsys)
    for value in ("1_0", "\uff11\uff10"):
        assert is_refused(given.words(value, folder), given.name, value, monkeypatch, capsys, "must be a")


TWICE = [each for each in ALL if each.is_option and each.type is not bool and not each.param.multiple]


@pytest.mark.parametrize("given", TWICE, ids=[f"{each.command} {each.name}" for each in TWICE])
def test_an_option_with_one_value_is_refused_where_it_stands_twice(
    given: Given, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*given.command.split(), given.name, "1", given.name, "2"]
    code, told = ends(words, monkeypatch), capsys.readouterr()
    assert (code, told.err) == (2, f"fallow {given.command}: {given.name}: is given twice, and takes one value\n")


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("--namespace a --namespace b jobs", "fallow: --namespace"),
        ("bench pipeline --flush --no-flush", "fallow bench pipeline: --flush"),
    ],
)
def test_so_are_options_of_all_commands_and_a_flag_with_its_opposite(
    words: str, refused: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(words.split(), monkeypatch) == 2
    assert capsys.readouterr().err == f"{refused}: is given twice, and takes one value\n"


def test_an_option_with_several_values_may_stand_several_times(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(["submit", "job.yaml", "--after", "a", "--after", "b:when"], monkeypatch) == 2
    assert "b:when" in capsys.readouterr().err


@pytest.mark.parametrize("given", [case for case in cases(str) if case.id in WRONG])
def test_a_word_without_a_meaning_is_told(
    given: Given, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in WRONG[f"{given.command} {given.name}"]:
        assert is_refused(given.words(value, folder), given.name, value, monkeypatch, capsys)


IDS = [
    case
    for case in cases(str, list)
    if case.values[0].param.metavar in {"ID", "JOB", "NODE", "ID...", "JOB...", "NODE..."}
]


@pytest.mark.parametrize("given", IDS)
def test_what_can_be_no_id_is_told_before_anything_is_asked(
    given: Given, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in ("", "A", "../x", "a b", "-" if given.is_option else "a-", "x" * 129):
        assert is_refused(
            given.words(value, folder), given.name, value, monkeypatch, capsys, rule="must be 1 to 128 of"
        )


def test_ids_are_given_to_many_commands() -> None:
    commands = {"job show", "jobs", "cancel", "job cancel", "job hold", "log why", "node show", "node remove"}
    assert {case.values[0].command for case in IDS} >= commands


@pytest.mark.parametrize(
    ("words", "shown", "rule"),
    [
        ("--tenant search --after vision/hello", "vision/hello", "must be a job of search, which --tenant names"),
        ("--after vision/hello --tenant search", "vision/hello", "must be a job of search, which --tenant names"),
        ("--after hello", "hello", "says no tenant: give TENANT/ID, or --tenant"),
        ("--after vision/hello/x", "vision/hello/x", JOB_RULE),
        ("--tenant vision --after ../x", "../x", JOB_RULE),
    ],
)
def test_a_list_of_jobs_goes_on_behind_one_of_its_own(
    words: str, shown: str, rule: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert is_refused(["jobs", *words.split()], "--after", shown, monkeypatch, capsys, rule)


@pytest.mark.parametrize("words", ["--after vision/hello", "--tenant vision --after hello", "--tenant a --after a/b"])
def test_a_job_behind_which_a_list_goes_on_may_be_named_either_way(
    words: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ends(["jobs", *words.split()], monkeypatch) == Exit.AWAY


@pytest.mark.parametrize("given", [case for case in cases(str) if case.values[0].command.split()[0] not in WORKS])
def test_whatever_is_typed_is_no_traceback(
    given: Given, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in HOSTILE:
        code = ends(given.words(value, folder), monkeypatch)
        told = capsys.readouterr()
        assert code in (1, 2, 3), (value[:20], code, told)
        assert max(map(len, told.err.splitlines()), default=0) < LINE_CHARS_MAX, value[:20]
        assert "\x1b" not in told.err


def test_every_word_of_a_command_that_works_has_wrong_values() -> None:
    words = [each.values[0] for each in cases(str)]
    at_work = [f"{each.command} {each.name}" for each in words if each.command.split()[0] in WORKS]
    assert [each for each in at_work if each not in WRONG] == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--kafka", "localhost"),
        ("--kafka", "127.0.0.1:notaport"),
        ("--kafka", "127.0.0.1:0"),
        ("--kafka", "127.0.0.1:70000"),
        ("--kafka", "a:1,,b:2"),
        ("--kafka", "jar"),
        ("--redis", "localhost"),
        ("--redis", "127.0.0.1:6379"),
        ("--redis", "http://127.0.0.1:6379/0"),
        ("--redis", "redis://127.0.0.1:notaport/0"),
        ("--redis", "redis://127.0.0.1:6379/zero"),
        ("--redis", "redis:///0"),
        ("--redis", "redis://127.0.0.1:6379/0?foo=1"),
        ("--redis", "redis://127.0.0.1:6379/0?socket_timeout=abc"),
        ("--redis", "redis://127.0.0.1:6379/0?db=abc"),
        ("--redis", "redis://127.0.0.1:6379/0?ssl_ca_certs=x"),
        ("--redis", "redis://127.0.0.1:6379/0?foo"),
        ("--namespace", "A B"),
        ("--namespace", "-x"),
        ("--namespace", "x" * 65),
        ("--cell-file", "nofile"),
        ("--cell-file", "."),
    ],
)
def test_where_the_cells_are_is_checked_for_every_command(
    option: str, value: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = without_password(value) if option in ("--kafka", "--redis") else value
    for command in ("jobs", "up", "log tail", "demo"):
        assert is_refused([option, value, *command.split()], option, shown, monkeypatch, capsys)


def test_a_folder_that_another_up_uses_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with held(folder / "data"):
        before = sorted((folder / "data").iterdir())
        assert is_refused(["up", "--data", "data"], "--data", "data", monkeypatch, capsys, f"process {os.getpid()}")
        assert sorted((folder / "data").iterdir()) == before
    with held(folder / "data"):
        pass


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ('{"cell": "moon", "node": {"id": "n1", "pool": "virtual", "gpus": 8}}', "cell = 'moon' is unknown"),
        ('{"cell": "main", "node": {"id": "n1", "pool": "moon", "gpus": 8}}', "pool = 'moon' of node n1 is unknown"),
        ('{"cell": "main"}', "line 1: node: is missing"),
    ],
)
def test_the_nodes_of_up_are_checked_before_anything_is_started(
    line: str, rule: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "nodes.jsonl").write_text(line)
    assert is_refused(["up", "--nodes-file", "nodes.jsonl"], "", "nodes.jsonl", monkeypatch, capsys, rule)
    assert not (folder / "out").exists()


def test_a_password_in_an_address_is_not_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ("redis://me:secret@host:x/0", "me:secret@host", "http://:secret@host/0", "redis://h:1/0?password=a&secret")
    for value in wrong:
        for option in ("--redis", "--kafka"):
            assert ends([option, value, "jobs"], monkeypatch) == 2
            assert "secret" not in capsys.readouterr().err


@pytest.mark.parametrize("variable", ["FALLOW_KAFKA", "FALLOW_REDIS", "FALLOW_NAMESPACE", "FALLOW_CELL_FILE"])
def test_a_value_from_the_environment_is_told_by_its_variable(
    variable: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "me:/sec//ret@host:x")
    assert ends(["jobs"], monkeypatch) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"fallow: {variable} = '")
    assert ("sec" in told) == (variable in {"FALLOW_NAMESPACE", "FALLOW_CELL_FILE"})


def test_where_no_address_is_given_and_nothing_answers_it_is_said_what_to_do() -> None:
    away = "Kafka: no Kafka at 127.0.0.1:9092: nothing answers there, or not as a Kafka with these settings"
    told = without_address(Exit.AWAY, away, ())
    assert told.endswith("paste the line `export FALLOW_KAFKA=... FALLOW_REDIS=...` that `fallow up` printed")
    assert told.startswith("FALLOW_KAFKA is not set, and no Kafka answers at 127.0.0.1:9092: ")
    assert without_address(Exit.NO, "damaged", ()) == "damaged"


@pytest.mark.parametrize(("server", "other"), [("Kafka", "Redis"), ("Redis", "Kafka")])
def test_the_address_that_was_forgotten_is_named_though_the_other_one_was_given(
    server: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(f"FALLOW_{server.upper()}", raising=False)
    monkeypatch.delenv("FALLOW_SECRETS_DIR", raising=False)
    monkeypatch.setenv(f"FALLOW_{other.upper()}", "x")
    assert servers_given(["fallow", "jobs"]) == [other]
    assert servers_given(["fallow", f"--{server.lower()}=x", "jobs"]) == ["Kafka", "Redis"]
    away = {"Kafka": "Kafka: no Kafka at a:1: x", "Redis": "no Redis at a:1: x"}
    assert without_address(Exit.AWAY, away[server], [other]).startswith(f"FALLOW_{server.upper()} is not set, and no")


@pytest.mark.parametrize("server", ["Kafka", "Redis"])
def test_the_option_and_the_variable_that_gave_an_address_are_told_beside_it(server: str) -> None:
    named = f"(--{server.lower()}, FALLOW_{server.upper()})"
    for told in (f"no {server} at [::1]:1/0", f"{server}: no {server} at a:1,b:2", f"{server}: {server} at a:1"):
        assert without_address(Exit.AWAY, f"{told}: x: y", [server]) == f"{told} {named}: x: y"
    assert (
        without_address(Exit.AWAY, "Redis at a:1: wrong password", [])
        == "Redis at a:1 (--redis, FALLOW_REDIS): wrong password"
    )


TIME_RULE = f"must be a whole number of milliseconds of up to 19 digits, or {DURATION_RULE}"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (
            "backfill_wait=10min",
            (
                "fallow: KEY=VALUE = 'backfill_wait=10min': there is no setting backfill_wait "
                "(did you mean backfill_wait_ms?); `fallow policy show` lists them"
            ),
        ),
        ("reservations_max=few", "fallow: reservations_max = 'few': must be a whole number"),
        *(
            (f"backfill_wait_ms={value}", f"fallow: backfill_wait_ms = '{value}': {TIME_RULE}")
            for value in ("1.5h", "soon", "1e3", "[1]", "true", "")
        ),
        ("placement=[1]", "fallow: placement = '[1]': must be text"),
        (
            "reservations_max",
            "fallow: KEY=VALUE = 'reservations_max': must be a setting and its value: reservations_max=VALUE",
        ),
    ],
)
def test_a_wrong_setting_of_the_policy_is_told_in_our_words(
    typed: str, told: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(["policy", "set", typed], monkeypatch) == Exit.USAGE
    assert capsys.readouterr().err == told + "\n"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["log", "export", "mine.yaml"], "FILE"),
        (["snapshot", "export", "mine.yaml"], "FILE"),
        (["view", "users", "--passwords", ".", "--out", "mine.yaml"], "--out"),
    ],
)
def test_a_file_that_is_there_is_written_over_only_where_that_is_asked_for(
    words: list[str],
    option: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    mine = folder / "mine.yaml"
    mine.write_text("id: hello\n", encoding="utf-8")
    told = f"fallow: {option} = 'mine.yaml': is there already; with --yes it is replaced\n"
    assert (ends(words, monkeypatch), capsys.readouterr().err) == (Exit.USAGE, told)
    assert mine.read_text(encoding="utf-8") == "id: hello\n"
    ends([*words, "--yes"], monkeypatch)
    assert "is there already" not in capsys.readouterr().err
    mine.write_text("", encoding="utf-8")
    ends(words, monkeypatch)
    assert "is there already" not in capsys.readouterr().err, "it holds nothing"


@pytest.mark.parametrize("second", ["zone=b", "zone=a"])
def test_a_label_of_a_node_has_one_value(
    second: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["agent", "--node", "n", "--pool", "process", "--gpus", "1", "--label", "zone=a", "--label", second]
    assert ends(words, monkeypatch) == Exit.USAGE
    assert capsys.readouterr().err == f"fallow: --label = '{second}': zone stands twice\n"


def test_a_host_name_with_capitals_is_told_what_an_id_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(["agent", "--node", "Machine-A", "--pool", "process", "--gpus", "1"], monkeypatch) == Exit.USAGE
    assert capsys.readouterr().err == f"fallow: --node = 'Machine-A': {ID_RULE}\n"


def test_a_pool_that_the_cell_file_does_not_have_is_told_with_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["agent", "--node", "n", "--pool", "machines", "--gpus", "1"]
    rule = "is unknown; pools for processes are: process"
    assert ends(words, monkeypatch) == Exit.USAGE
    assert capsys.readouterr().err == f"fallow: --pool = 'machines': {rule} (cell file: cell.yaml)\n"
    monkeypatch.delenv("FALLOW_CELL_FILE")
    assert ends(words, monkeypatch) == Exit.USAGE
    assert "(cell file: FALLOW_CELL_FILE is not set, so it is " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("node", "pool", "said"),
    [("Machine-A", "process", f"--node = 'Machine-A': {ID_RULE}"), ("n", "virtual", "--pool = 'virtual': ")],
)
def test_a_node_and_a_pool_that_are_wrong_are_told_before_gpus_are_looked_for(
    node: str, pool: str, said: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(folder))  # without nvidia-smi
    assert ends(["agent", "--node", node, "--pool", pool], monkeypatch) == Exit.USAGE
    assert capsys.readouterr().err.startswith(f"fallow: {said}")


@pytest.mark.parametrize("option", ["--cell-file", "--kafka", "--redis", "--namespace"])
@pytest.mark.parametrize("command", ["jobs", "node show"])
def test_an_option_of_all_commands_is_told_to_stand_before_them(
    command: str, option: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends([*command.split(), option, "x"], monkeypatch) == Exit.USAGE
    assert f"; {option} stands before the command: fallow {option} ... {command}; see" in capsys.readouterr().err


def test_a_placement_policy_that_there_is_not_is_wrong_use_as_in_a_cell_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(["policy", "set", "placement=e-binpak"], monkeypatch) == Exit.USAGE
    said = capsys.readouterr().err
    assert said.startswith("fallow: placement = 'e-binpak': must be one of best-fit, ")
    assert "did you mean e-binpack?" in said


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_help_of_a_command_breaks_its_lines_where_the_terminal_does(name: str) -> None:
    command = LazyGroup(name="fallow").get_command(None, name)
    helps = [str(each.help) for each in (command, *getattr(command, "commands", {}).values())]
    paragraphs = [paragraph.strip("\n") for text in helps for paragraph in text.split("\n\n")]
    assert [paragraph for paragraph in paragraphs if "\n" in paragraph] == []


def test_a_time_of_the_policy_below_a_second_needs_a_unit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = "is less than a second and needs a unit: 20ms, or 20s"
    assert ends(["policy", "set", "stop_grace_wall_ms=20"], monkeypatch) == Exit.USAGE
    assert capsys.readouterr().err == f"fallow: stop_grace_wall_ms = '20': {rule}\n"
    assert _read(["stop_grace_wall_ms=20ms", "backfill_wait_ms=0", "node_lease_wall_ms=1000"]) == {
        "stop_grace_wall_ms": 20,
        "backfill_wait_ms": 0,
        "node_lease_wall_ms": 1_000,
    }


def test_a_time_of_the_policy_may_be_a_duration() -> None:
    assert _read(["backfill_wait_ms=10min", "node_lease_wall_ms=30000"]) == {
        "backfill_wait_ms": 600_000,
        "node_lease_wall_ms": 30_000,
    }


@pytest.mark.parametrize("command", sorted(LEAVES))
def test_an_argument_that_is_no_text_is_told_by_every_command(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for begin in ("", "--reason=", "a="):
        assert ends([*command.split(), begin + NO_TEXT], monkeypatch) == Exit.USAGE
        assert capsys.readouterr().err == f"fallow: argument '{begin}n\\xff' is no UTF-8\n"


def test_a_variable_of_ours_that_is_no_text_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(os.environ, "FALLOW_NAMESPACE", NO_TEXT)
    assert ends(["jobs"], monkeypatch) == Exit.USAGE
    assert capsys.readouterr().err == "fallow: FALLOW_NAMESPACE = 'n\\xff' is no UTF-8\n"


def test_a_standard_input_that_is_closed_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert ends(["submit", "-"], monkeypatch) == Exit.USAGE
    assert capsys.readouterr().err == "fallow: standard input: is closed\n"


@pytest.mark.parametrize(
    "words",
    [
        ("up", "--data"),
        ("agent", "--node", "n", "--pool", "process", "--gpus", "1", "--state-dir"),
        ("simulate", "--jobs", "{file}", "--nodes", "4", "--out"),
    ],
)
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_folder_that_only_looks_as_if_it_could_be_made_is_told(
    words: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "file").write_text("job_id,tenant,submit_s,gpus,duration_s\na,t,0,4,100\n")
    given = [word.format(file=folder / "file") for word in words]
    assert ends([*given, "/proc/nothing"], monkeypatch) == Exit.USAGE
    assert "/proc/nothing" in capsys.readouterr().err
