"""Each number that a service reads from its environment has bounds: one that is out of them ends it at its start."""

from __future__ import annotations

import time
from typing import Any

import pytest

from fallow.services.admission.settings import AdmissionSettings
from fallow.services.executor.settings import AgentSettings, ExecutorSettings
from fallow.services.metrics.settings import MetricsSettings
from fallow.services.placement.settings import PlacementSettings
from fallow.services.projector.settings import ProjectorSettings
from fallow.services.queueing.settings import QueueingSettings
from fallow.shared.runtime.settings import ServiceSettings, SettingsError

ALL = (
    ServiceSettings,
    *(AdmissionSettings, ExecutorSettings, AgentSettings, MetricsSettings),
    *(PlacementSettings, ProjectorSettings, QueueingSettings),
)
NUMBERS = sorted(
    {(kind, name) for kind in ALL for name, field in kind.model_fields.items() if field.annotation in {int, float}},
    key=str,
)
NOW_MS = time.time_ns() // 1_000_000


def refusal(kind: type[Any], name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said of this field; empty where it is taken."""
    variable = f"FALLOW_{name.upper()}"
    monkeypatch.setenv(variable, value)
    try:
        kind.load()
    except SettingsError as error:
        return "".join(line for line in str(error).splitlines() if line.startswith(f"{variable} = {value!r}: "))
    return ""


@pytest.mark.parametrize("value", ["9" * 23, "-1", "1e999", "nan"])
@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_a_number_without_sense_is_refused(
    kind: type[Any], name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(kind, name, value, monkeypatch)


@pytest.mark.parametrize("ahead_ms", [3_600_000, 10 * 365 * 86_400_000])
def test_cell_time_that_has_not_begun_is_refused(ahead_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = "must be a moment that is past: this machine's clock says "
    assert rule in refusal(ServiceSettings, "clock_origin_ms", str(NOW_MS + ahead_ms), monkeypatch)


def test_clocks_of_machines_may_differ_a_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_CLOCK_ORIGIN_MS", str(NOW_MS + 10_000))
    assert ServiceSettings.load().clock_origin_ms == NOW_MS + 10_000


@pytest.mark.parametrize("few", ["1", "63"])
def test_a_worker_may_open_what_a_program_needs_to_begin(few: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "must be 0, or 64 at least" in refusal(AgentSettings, "worker_open_files", few, monkeypatch)


@pytest.mark.parametrize(
    ("name", "value"), [("origin_ms", str(NOW_MS + 3_600_000)), ("speed", "1000000")], ids=["origin", "speed"]
)
def test_a_clock_that_goes_on_only_when_told_has_no_begin_and_no_end(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(ServiceSettings, f"clock_{name}", value, monkeypatch)
    monkeypatch.setenv("FALLOW_CLOCK", "stepped")
    assert not refusal(ServiceSettings, f"clock_{name}", value, monkeypatch)


@pytest.mark.parametrize(
    "text", ["jobs-0@1:2,nodes-0@1:2:3", "jobs-0@1:2, nodes-0@1:2:3", " jobs-0@1:2 ,nodes-0@1:2:3 "]
)
def test_inputs_that_are_read_on_stand_by_commas_and_spaces(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_RESUME_INPUTS", text)
    assert PlacementSettings.load().resumes == {("jobs-0", 1): (2, frozenset({1})), ("nodes-0", 1): (2, frozenset({3}))}


def test_an_input_may_be_read_on_behind_several_losses_at_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_RESUME_INPUTS", "jobs-0@12:15, jobs-0@12:15:2,jobs-0@12:15:4,jobs-0@13:99")
    assert PlacementSettings.load().resumes == {
        ("jobs-0", 12): (15, frozenset({1, 2, 4})),
        ("jobs-0", 13): (99, frozenset({1})),
    }


@pytest.mark.parametrize(
    "text",
    [
        *("jobs", "jobs-0@1", "jobs-0@1:2,", "jobs-0@1:2 nodes-0@1:2", "jobs-0@1:2:0"),
        *("nonsense-3@1:2", "jobs-00@1:2", "jobs-0@01:2", "jobs-0@1:02"),
    ],
)
def test_inputs_that_are_none_are_refused_in_words(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = refusal(PlacementSettings, "resume_inputs", text, monkeypatch)
    assert told.endswith(
        "must be INPUT-PARTITION@READ:FROM or INPUT-PARTITION@READ:FROM:TIME, several by commas, such as jobs-0@12:15,"
        " and INPUT one of jobs, nodes, proposals, operations"
    )


@pytest.mark.parametrize(
    "text", ["nodes-0@1:2,jobs-0@12:15 , jobs-0@12:99", "jobs-0@12:15,jobs-0@12:15:2,jobs-0@12:99:3,jobs-0@12:99"]
)
def test_an_input_is_read_on_from_one_place_only(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = refusal(PlacementSettings, "resume_inputs", text, monkeypatch)
    assert told.endswith("must say of jobs-0@12 one offset from which it is read on, and says 15 and 99")


@pytest.mark.parametrize(
    ("text", "loss"), [("jobs-0@12:15:1,jobs-0@12:15", 1), ("jobs-0@12:15:3,nodes-0@1:2,jobs-0@12:15:3", 3)]
)
def test_a_loss_has_one_decision(text: str, loss: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told = refusal(PlacementSettings, "resume_inputs", text, monkeypatch)
    assert told.endswith(f"must say once of each loss that it is read on, and says it twice of jobs-0@12:15:{loss}")


def test_cells_that_are_none_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    told = refusal(PlacementSettings, "begin_cells", "main;other", monkeypatch)
    assert told.endswith("must be names of cells, several by commas")
