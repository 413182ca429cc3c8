"""However large a cell file is, reading it holds up nothing else of the process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.model.config import Tenant, depths_of
from fallow.shared.runtime.files.cell_file import MISTAKES_TOLD, CellFileError, parse_cell_file
from fallow.shared.runtime.files.yaml_text import DEPTH_MAX
from tests.hypothesis_profile import reaches


@pytest.mark.parametrize("deep", ["[" * 200_000, "- " * 200_000, "{a: " * 200_000])
def test_a_file_of_bottomless_nesting_is_refused_in_one_line(deep: str) -> None:
    with pytest.raises(CellFileError) as refused:
        parse_cell_file(deep, "cell.yaml")
    assert str(refused.value) == f"cell.yaml: line 1: nested in more than {DEPTH_MAX} levels"


@pytest.mark.parametrize("row", ["  - {nam: x}\n", "  - {name: x, gpus: many}\n"])
def test_of_thousands_of_mistakes_the_first_are_told_and_the_number_of_the_others(row: str) -> None:
    """Each compared with all others, these took minutes."""
    with pytest.raises(CellFileError) as refused:
        parse_cell_file("cells: [{name: main}]\ntenants:\n" + row * 20_000, "cell.yaml")
    told = str(refused.value).splitlines()
    assert len(told) == MISTAKES_TOLD + 1
    assert told[-1].startswith("cell.yaml: and ")
    assert told[-1].endswith(" more")


def test_of_thousands_of_keys_that_stand_twice_the_first_are_told() -> None:
    with pytest.raises(CellFileError) as refused:
        parse_cell_file("cells: []\n" * 20_000, "cell.yaml")
    told = str(refused.value).splitlines()
    assert told[0] == "cell.yaml: line 2: cells: the key stands in line 1 already"
    assert told[MISTAKES_TOLD:] == [f"cell.yaml: and {19_999 - MISTAKES_TOLD} more"]


def _named(number: int | None) -> str | None:
    return None if number is None else f"t{number}"


@given(st.lists(st.integers(0, 30), max_size=30))
def test_a_tenant_is_as_deep_as_it_has_parents_above_it(parents: list[int]) -> None:
    """The parent of tenant n is the n-th number, where that is lower than n; else it has none."""
    above = [parent if parent < number else None for number, parent in enumerate(parents)]
    tenants = [
        Tenant(name=f"t{number}", parent=None if parent is None else f"t{parent}")
        for number, parent in enumerate(above)
    ]

    def depth(number: int) -> int:
        parent = above[number]
        return 0 if parent is None else 1 + depth(parent)

    reaches("a tenant stands two levels below another one", max(map(depth, range(len(above))), default=0) > 1)
    assert depths_of(tenants[::-1]) == {f"t{number}": depth(number) for number in range(len(above))}
