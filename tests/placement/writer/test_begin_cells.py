"""The cells that may begin though no key proves what their logs hold are those of the cell file, or nothing starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fallow.services.placement.app.writer import main
from fallow.services.placement.settings import PlacementSettings
from fallow.shared.runtime.errors.endings import WRONG_SETTINGS
from fallow.shared.runtime.process import make_context, run_to_end
from fallow.shared.runtime.settings import SettingsError

TEXT = """
cells:
  - {name: main, ordinal: 0, pools: [{name: train, gpus: 8}]}
  - {name: two, ordinal: 1, pools: [{name: more, gpus: 8}]}
tenants: [{name: vision}]
"""


def settings_of(text: str, **more: object) -> PlacementSettings:
    return PlacementSettings.model_validate({"namespace": "t", "begin_cells": text} | more)


@pytest.mark.parametrize(
    ("text", "cells"),
    [("", set()), ("main", {"main"}), ("main,two", {"main", "two"}), (" main , two ", {"main", "two"})],
)
def test_blanks_around_the_names_are_no_part_of_them(text: str, cells: set[str]) -> None:
    assert settings_of(text).begins == cells


@pytest.mark.parametrize("text", [",", "main,", "main two", "Main", "main;two", " ", "a" * 65])
def test_what_no_cell_can_be_called_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("FALLOW_BEGIN_CELLS", text)
    with pytest.raises(SettingsError, match=r"^FALLOW_BEGIN_CELLS = "):
        PlacementSettings.load()


async def test_a_name_that_no_cell_has_ends_the_process_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cell.yaml"
    file.write_text(TEXT, encoding="utf-8")
    context = make_context("placement", settings_of("main, mian", cell_file=file))
    assert await run_to_end(context, main) == WRONG_SETTINGS
    said = capsys.readouterr().out
    assert "FALLOW_BEGIN_CELLS = 'main, mian': the cell file has no cell 'mian', but main, two" in said
    assert "Traceback" not in said
