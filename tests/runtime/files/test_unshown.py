"""A private key in a wrong place stands in no message, whatever the place."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
import typer
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fallow.cli.app import app
from fallow.cli.errors.failures import Exit, end_with, refuse, say
from fallow.cli.job.files.file import JobFileError, read_jobs
from fallow.shared.events.codec.encoding import shorten
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.runtime.files.cell_file import CellFileError, parse_cell_file
from fallow.shared.runtime.logs import rendering
from fallow.shared.runtime.settings import LogFormat, ServiceSettings, SettingsError
from fallow.shared.unshown import without_secrets
from tests.hypothesis_profile import reaches
from tests.signing import WRITERS, public

KEYS = st.integers().map(lambda number: SigningKey(sha256(str(number).encode()).digest()).text)
"""None of them has a sign often in a row, as other text may."""

BODY = len("ed25519-private:")

CELL = {
    "cells": [
        {
            "name": "main",
            "ordinal": 0,
            "pools": [{"name": "training", "gpus": 64, "nodes": ["a*"]}],
            "queues": [{"name": "default"}],
            "signing": {"from_version": 1, "keys": [{"public": WRITERS.public, "until_version": 9}]},
            "policy": {"reservations_max": 1},
        }
    ],
    "tenants": [{"name": "vision", "quotas": [{"gpu_type": "gpu", "limit": 3}]}],
    "limits": {"workers_per_job": 9},
}
JOB = {
    "id": "a",
    "tenant": "vision",
    "workers": 2,
    "retry": {"budget": 1},
    "run": {"driver": "process", "argv": ["sleep", "1"], "env": {"A": "1"}, "dir": "/a"},
    "after": [{"job": "b", "when": "ok"}],
    "node_labels": ["zone=a"],
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every part of a plain value, by its path."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, part in entries for found in places(part, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """The value with the part at this path changed."""
    if not path:
        return change(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(copy[path[0]], path[1:], change)
    return copy


def wrongly_placed(key: str) -> list[Callable[[Any], Any]]:
    """As the value, in a list, below a name that there is not, and as a name."""

    def as_name(part: Any) -> Any:
        return {**part, key: 1} if isinstance(part, dict) else {key: part}

    def below(part: Any) -> Any:
        return {**part, "private": key} if isinstance(part, dict) else {"private": key}

    return [lambda _: key, lambda _: [key], as_name, below]


def shows(text: str, key: str) -> bool:
    """Whether eight signs in a row of the key's secret part stand in the text."""
    body = key[BODY:] if key.startswith("ed25519") else key
    return any(body[at : at + 8] in text for at in range(len(body) - 7))


def told_by(read: Callable[[], object]) -> str:
    """What is told of a file or of settings; "" where they can be used."""
    try:
        read()
    except (CellFileError, JobFileError, SettingsError) as error:
        return str(error)
    return ""


@given(key=KEYS, is_bare=st.booleans(), at=st.sampled_from(places(CELL)), way=st.integers(0, 3), is_json=st.booleans())
def test_no_mistake_of_a_cell_file_shows_a_key(
    key: str, is_bare: bool, at: tuple[Any, ...], way: int, is_json: bool
) -> None:
    given_key = key[BODY:] if is_bare else key
    body = put(CELL, at, wrongly_placed(given_key)[way])
    text = json.dumps(body) if is_json else yaml.safe_dump(body)
    told = told_by(lambda: parse_cell_file(text, "cell.yaml"))
    reaches("a cell file with a key in the wrong place is refused", told)
    assert not shows(told, key)


@given(key=KEYS, is_bare=st.booleans(), at=st.sampled_from(places(JOB)), way=st.integers(0, 3), lines=st.booleans())
def test_no_mistake_of_a_job_file_shows_a_key(
    key: str, is_bare: bool, at: tuple[Any, ...], way: int, lines: bool
) -> None:
    body = put(JOB, at, wrongly_placed(key[BODY:] if is_bare else key)[way])
    line = json.dumps(body)
    told = told_by(lambda: read_jobs(f"{line}\n{line}" if lines else line, "jobs"))
    reaches("a job file with a key in the wrong place is refused", told)
    assert not shows(told, key)


@pytest.mark.parametrize("wrong", ["{", "'", "!", "[", "- a: ", "? ", "\t", "@", "%", "&a *b "])
@pytest.mark.parametrize("read", [lambda text: parse_cell_file(text, "f"), lambda text: read_jobs(text, "f")])
def test_what_is_no_yaml_shows_no_key(wrong: str, read: Callable[[str], Any]) -> None:
    key = SigningKey(b"k" * 32).text
    for text in (wrong + key, key + wrong, f"{wrong}{key}: {wrong}{key}", f"a: {key} {wrong}: {wrong}", f"{{{key}}} x"):
        with pytest.raises((CellFileError, JobFileError)) as raised:
            read(text)
        assert not shows(str(raised.value), key), text


TYPED = sorted({*(f"FALLOW_{name.upper()}" for name in ServiceSettings.model_fields), "FALLOW_SECRETS_DIR"})


@pytest.mark.parametrize("variable", TYPED)
def test_no_setting_shows_a_key(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key = SigningKey(b"k" * 32).text
    monkeypatch.setenv(variable, f"{key}\n {key}")
    assert not shows(told_by(ServiceSettings.load), key)


@pytest.mark.parametrize(
    "words",
    [
        ["KEY"],
        ["job", "KEY"],
        ["jobs", "--status", "KEY"],
        ["node", "KEY"],
        ["node", "drain", "KEY"],
        ["--kafka", "KEY", "jobs"],
        ["cell", "check", "KEY"],
        ["jobs", "--KEY"],
        ["--cell-file", "KEY", "cell", "check"],
    ],
)
def test_no_wrong_use_shows_a_key(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    key = SigningKey(b"k" * 32).text
    done = CliRunner().invoke(app, [word.replace("KEY", key) for word in words], standalone_mode=False)
    if done.exception is not None:
        from fallow.cli.errors.wrong_use import in_one_line  # noqa: PLC0415 - as `main` tells it

        say(in_one_line(done.exception))  # type: ignore[arg-type]
    assert not shows(done.output + capsys.readouterr().err, key)


def test_no_word_to_a_person_and_no_log_shows_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    key = SigningKey(b"k" * 32).text
    for tell in (say, lambda text: refuse("--a", text, "no"), lambda text: end_with(Exit.NO, text)):
        with contextlib.suppress(typer.Exit):
            tell(f"a {key}")
    assert not shows(capsys.readouterr().err, key)


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_no_log_shows_a_key_nor_a_password(log_format: LogFormat) -> None:
    key = SigningKey(b"k" * 32).text
    event: Any = {"event": f"a {key}", "reason": f"{key} at redis://me:hunter22@h:1/0", "at": [key], "level": "info"}
    event |= {"_record": None, "_from_structlog": True, "exc_info": ValueError(key)}
    for step in rendering(log_format):
        event = step(logging.getLogger(), "info", event)
    assert "***" in event
    assert not shows(event, key)
    assert "hunter22" not in event


@given(KEYS, st.text(max_size=150), st.text(max_size=150))
def test_a_shortened_value_shows_no_key(key: str, before: str, behind: str) -> None:
    assert not shows(shorten(f"{before}{key}{behind}"), key)
    assert not shows(shorten([f"{before}{key}{behind}"]), key)
    assert not shows(shorten({f"{before} {key}": {key: key}}), key)


PIECES = st.sampled_from(
    (
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA\nQUJD",
        "-----END PRIVATE KEY-----",
        "redis://me:hunter22@h:1/0",
        "://",
        "@",
        ":",
        "'",
        '"',
        "\n",
        "ed25519-private:",
    )
)
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=12)), max_size=8).map("".join)


@given(reason=TEXTS, at=TEXTS)
def test_a_line_of_json_stays_one_and_keeps_what_is_told_beside_a_secret(reason: str, at: str) -> None:
    event: Any = {"cell": "main", "reason": reason, "at": at, "offset": 7, "event": "input set aside", "level": "info"}
    event |= {"_record": None, "_from_structlog": True}
    for step in rendering(LogFormat.JSON):
        event = step(logging.getLogger(), "info", event)
    told = json.loads(event)
    reaches("a secret is masked in a line of JSON", (told["reason"], told["at"]) != (reason, at))
    assert (told["cell"], told["offset"], told["event"], told["level"]) == ("main", 7, "input set aside", "info")


PEM_BODY = base64.b64encode(b"k" * 48).decode()
PEM = f"-----BEGIN {{kind}}PRIVATE KEY-----\n{PEM_BODY}\n{PEM_BODY[:24]}\n-----END {{kind}}PRIVATE KEY-----"


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
@pytest.mark.parametrize("change", [lambda pem: pem, lambda pem: pem[:90], lambda pem: pem.replace("\n", "\\n")])
def test_a_key_in_a_frame_is_masked_whole_or_cut_off_and_nothing_behind_it(
    kind: str, change: Callable[[str], str]
) -> None:
    text = f"a {change(PEM.format(kind=kind))} 7: is wrong\nb: is wrong, too"
    shown = without_secrets(text)
    assert PEM_BODY[:8] not in shown
    assert shown.startswith(f"a -----BEGIN {kind}PRIVATE KEY-----***")
    assert shown.endswith(" 7: is wrong\nb: is wrong, too")


@pytest.mark.parametrize(
    "password",
    ["hunter22", "pa'ss", "p@ss", "p/w", "123/w", "p:w", "12345", "x" * 2_000, "p,w", "s://p", "s://p:w", "12`w"],
)
@pytest.mark.parametrize("user", ["", "me", "me-2"])
def test_the_password_of_an_address_is_masked_whatever_signs_it_has(user: str, password: str) -> None:
    assert without_secrets(f"no answer of 'rediss://{user}:{password}@h:1/0' in 5 s") == (
        f"no answer of 'rediss://{user}:***@h:1/0' in 5 s"
    )


@pytest.mark.parametrize("password", ["hunter22", "p@ss", "p/w", "p:w", "12345", "s3c//ret", "p,w"])
@pytest.mark.parametrize("places", ["h:1", "h.lan:9092,127.0.0.1:2", "[::1]:9092"])
def test_the_password_of_an_address_without_a_scheme_is_masked_too(password: str, places: str) -> None:
    assert without_secrets(f"--kafka = 'me:{password}@{places}': must be") == f"--kafka = 'me:***@{places}': must be"


@pytest.mark.parametrize("text", ["me@h:1", "image:tag@sha256:123abc", "mail me@h.lan: at 10:30", "a@b,c:1"])
def test_what_has_no_password_before_a_place_stays_as_it_is(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "text", ["http://h:8080/a", "'redis://h:1', 'a@b'", "redis://h:1 of me@h", "redis://me@h:1", "kafka 1:2@3", "a://b"]
)
def test_an_address_without_a_password_stays_as_it_is(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize("sign", [": ", "=", "_", "-----"])
@pytest.mark.parametrize("kind", ["ed25519-private", "ED25519-PRIVATE", "ed25519_Private"])
def test_a_key_is_told_by_its_kind_also_with_a_slip_in_it(kind: str, sign: str) -> None:
    assert without_secrets(f"{kind}{sign}QUJDREVG/x+y") == f"{kind}{sign}***/x+y"[: len(kind + sign) + 3]


def test_a_public_key_is_no_secret() -> None:
    text = f"key '{WRITERS.public}' stands twice"
    assert without_secrets(text) == text
    assert WRITERS.public in public(WRITERS)


def test_a_key_is_masked_also_in_what_is_said_while_python_shuts_down() -> None:
    code = """
from fallow.shared.unshown import without_secrets
class Said:
    def __del__(self, shown=without_secrets, say=print):
        say(shown(f"ed25519-private:{'A' * 43}=, {'B' * 43}="))
kept = Said()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("ed25519-private:***, ***\n", "")
