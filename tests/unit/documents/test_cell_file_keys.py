"""The shipped cell file names every number by which a cell decides, with its default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fallow.shared.cluster.model.config import Limits
from fallow.shared.events.operations import CellPolicy

SHIPPED = (Path(__file__).parents[3] / "deploy/cell.yaml").read_text()


@pytest.mark.parametrize("key", CellPolicy.__struct_fields__)
def test_every_setting_of_the_policy_stands_in_the_shipped_cell_file_with_its_default(key: str) -> None:
    default = getattr(CellPolicy(), key)
    found = re.search(rf"^      {key}: +(\S+) +#.*\({default}[^)]*\)", SHIPPED, re.MULTILINE)
    assert found is not None, f"deploy/cell.yaml: {key} is missing, or its comment does not tell the default {default}"
    assert found[1] == str(default)


@pytest.mark.parametrize("key", Limits.model_fields)
def test_every_limit_stands_in_the_shipped_cell_file_with_its_default(key: str) -> None:
    default = getattr(Limits(), key)
    found = re.search(rf"^  {key}: +(\S+) +#.*\({default}[^)]*\)", SHIPPED, re.MULTILINE)
    assert found is not None, f"deploy/cell.yaml: {key} is missing, or its comment does not tell the default {default}"
    assert found[1] == str(default)
