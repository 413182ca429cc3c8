"""Several cells with a log of another release: each of them is told."""

from __future__ import annotations

import re

from fallow.services.admission.app.keeping_pace import KeepingPace
from fallow.services.admission.settings import AdmissionSettings
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.runtime.process import make_context
from tests.log.worlds.earlier_release import CELL_OF_IT, first_decision

LAYOUT = Layout("t", {"main": 0, "own": 1, "other": 2})


async def test_each_cell_with_a_log_of_another_release_is_named() -> None:
    broker = MemoryBroker()
    for topic in ("decisions", "snapshots"):
        broker.create_topic(f"t.{topic}", 3)
    pace = KeepingPace(make_context("admission", AdmissionSettings()), MemoryLog(broker), LAYOUT, [*LAYOUT.ordinals])
    assert await pace.others() is None
    for cell in ("main", "other"):
        broker.write(first_decision(Layout("t", {CELL_OF_IT: LAYOUT.ordinals[cell]})))
    assert re.findall(r"cell (\w+): offset 0: ", await pace.others() or "") == ["main", "other"]
