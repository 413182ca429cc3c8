"""`fallow cell key` and `fallow cell check`: keys are made, and judged as the services judge them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fallow.cli.app import app
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.runtime.files.cell_file import CellFileError, parse_cell_file
from tests.signing import NEXT, WRITERS, public, signed_text


def fallow(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_the_private_key_is_its_owners_alone_and_the_public_one_is_printed(tmp_path: Path) -> None:
    path = tmp_path / "key"
    done = fallow("cell", "key", str(path))
    assert done.exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    made = SigningKey.read(path.read_text())
    assert done.stdout == f"- public: {made.public}\n"
    assert made.text not in done.output


def test_what_is_printed_stands_in_a_cell_file_as_it_is(tmp_path: Path) -> None:
    told = json.loads(fallow("cell", "key", str(tmp_path / "key"), "--json").stdout)
    text = signed_text(f'{{public: "{told["public"]}"}}')
    signing = parse_cell_file(text, "cell").cells[0].signing
    assert signing is not None
    assert signing.keys[0].public == told["public"]


def test_a_key_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("of old")
    done = fallow("cell", "key", str(path))
    assert (done.exit_code, path.read_text()) == (2, "of old")
    assert "may hold a key that is in use" in done.output


def test_the_check_of_a_cell_file_tells_by_which_keys_decisions_are_believed(tmp_path: Path) -> None:
    path = tmp_path / "cell.yaml"
    path.write_text(signed_text(public(NEXT), public(WRITERS, until_version=7), from_version=3))
    assert (
        "cell main: decisions are signed from version 3: 1 key, 1 retired" in fallow("cell", "check", str(path)).stdout
    )
    path.write_text(signed_text())
    assert "cell main: decisions are not signed" in fallow("cell", "check", str(path)).stdout


@pytest.mark.parametrize(
    ("keys", "rule"),
    [
        (['{public: "ed25519:AAAA"}'], r"keys\[0\].public: must be ed25519: and 32 bytes"),
        ([f'{{public: "{WRITERS.text}"}}'], "public"),
        ([public(WRITERS), public(WRITERS)], "stands twice"),
        ([public(WRITERS, until_version=4)], "each has an until_version"),
        ([public(WRITERS, until_version=0), public(NEXT)], "until_version = 0"),
    ],
)
def test_keys_that_no_reader_could_use_are_mistakes_of_the_file(keys: list[str], rule: str) -> None:
    with pytest.raises(CellFileError, match=rule):
        parse_cell_file(signed_text(*keys), "cell")


def test_a_private_key_that_stands_in_a_cell_file_by_mistake_is_not_shown() -> None:
    with pytest.raises(CellFileError) as error:
        parse_cell_file(signed_text(f'{{public: "{WRITERS.text}"}}'), "cell")
    assert WRITERS.text.partition(":")[2] not in str(error.value)
