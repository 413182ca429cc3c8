"""What a run in fast motion says that it waits for."""

from __future__ import annotations

import pytest

from fallow.replay.realtime_run import stage_of


@pytest.mark.parametrize(
    ("sent", "has_live", "told"),
    [
        (0, False, "0 of 648 commands sent"),
        (647, True, "647 of 648 commands sent"),
        (648, True, "waiting for the last jobs to end"),
        (648, False, "all jobs are over; waiting for the services"),
    ],
)
def test_a_run_names_what_it_waits_for(sent: int, told: str, *, has_live: bool) -> None:
    assert stage_of(sent, 648, has_live=has_live) == told
