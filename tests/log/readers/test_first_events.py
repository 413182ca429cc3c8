"""Of what operators set alerts on there is a 0 before it happens: else the first time is no increase."""

from __future__ import annotations

import pytest

from fallow.services.placement.app.metrics import CellMetrics, PlacementMetrics
from fallow.services.placement.settings import PlacementSettings
from fallow.shared.events.decisions import INPUTS
from fallow.shared.log.opening import layout_for
from fallow.shared.runtime.files.cell_file import parse_cell_file
from fallow.shared.runtime.process import Context, make_context

FILE = """
cells:
  - {name: cell-a, ordinal: 0, pools: [{name: pool-a, gpus: 64}]}
  - {name: cell-b, ordinal: 1, pools: [{name: pool-b, gpus: 64}]}
tenants: [{name: acme}]
"""


@pytest.fixture
def context() -> Context[PlacementSettings]:
    return make_context("placement", PlacementSettings(namespace="t"))


@pytest.mark.parametrize("outcome", ["in_force", "refused"])
def test_no_cell_file_was_read_again_yet(context: Context[PlacementSettings], outcome: str) -> None:
    layout_for(context, parse_cell_file(FILE, "cell"))
    assert context.registry.get_sample_value("fallow_cell_file_reloads_total", {"outcome": outcome}) == 0


@pytest.mark.parametrize("name", ["fallow_cell_failures_total", "fallow_forged_decisions_total"])
@pytest.mark.parametrize("cell", ["cell-a", "cell-b"])
def test_in_no_cell_of_the_file_anything_happened_yet(
    context: Context[PlacementSettings], name: str, cell: str
) -> None:
    layout_for(context, parse_cell_file(FILE, "cell"))
    assert context.registry.get_sample_value(name, {"cell": cell}) == 0


@pytest.mark.parametrize("name", INPUTS)
def test_of_no_input_anything_was_deleted_unread_yet(context: Context[PlacementSettings], name: str) -> None:
    CellMetrics(PlacementMetrics(context.registry), "cell-a")
    about = {"cell": "cell-a", "input": name}
    assert context.registry.get_sample_value("fallow_inputs_deleted_unread_total", about) == 0
