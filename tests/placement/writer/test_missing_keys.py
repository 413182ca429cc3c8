"""What missing keys keep a process from: each row of the table of `missing_keys.py`, for each kind of work."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from fallow.services.placement.app.appending import Appending
from fallow.services.placement.app.metrics import CellMetrics, PlacementMetrics
from fallow.services.placement.app.setbacks import Setbacks
from fallow.services.placement.app.watch.clock_watch import ClockWatch
from fallow.services.placement.settings import PlacementSettings
from fallow.shared.cluster.model.file_in_force import as_effect
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import CHAIN_START, Decision, next_chain
from fallow.shared.events.effects import AnyEffect
from fallow.shared.log.follower import Follower
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.log.keys.missing_keys import (
    ALL_FORGED,
    NODES,
    NONE_YET,
    OLDER_COPY,
    TAKING_OVER,
    TOO_EARLY,
    WRITING,
    obstacle,
)
from fallow.shared.log.memory.log import MemoryLog
from fallow.shared.runtime.process import make_context
from tests.placement.worlds.writers import CELL, LAYOUT, NAMESPACE, cluster
from tests.signing import NEXT, STRANGERS, WRITERS, believing, public, signed, signed_file

Written = tuple[SigningKey | None, tuple[AnyEffect, ...]]
"""A decision: who signs it, and its effects."""

NEWER = (as_effect(signed_file(public(WRITERS), public(NEXT))),)
WITHOUT_KEYS = (as_effect(signed_file()),)

LOGS: dict[str, tuple[int, tuple[Written, ...]]] = {
    OLDER_COPY: (1, ((WRITERS, NEWER), (NEXT, ()))),
    ALL_FORGED: (1, ((STRANGERS, ()),)),
    TOO_EARLY: (2, ((None, WITHOUT_KEYS), (None, ()))),
    NONE_YET: (1, ()),
    "": (1, ((WRITERS, NEWER), (WRITERS, ()))),
}
"""By what is known: from which version on the own cell file, which names one key, asks for signatures, and the log."""

KEPT_FROM = {
    OLDER_COPY: ("writing", "taking over", "nodes"),
    ALL_FORGED: ("writing", "taking over", "nodes"),
    TOO_EARLY: ("taking over", "nodes"),
    NONE_YET: ("nodes",),
    "": (),
}
COLUMNS = {"writing": WRITING, "taking over": TAKING_OVER, "nodes": NODES}
FILE = Path("cell.yaml")


async def read(known: str) -> tuple[MemoryLog, Follower]:
    """Who has read the log of which this is known."""
    from_version, written = LOGS[known]
    log, chain = MemoryLog(cluster()), CHAIN_START
    for version, (key, effects) in enumerate(written, 1):
        decision = Decision(cell=CELL, version=version, epoch=0, at_ms=0, effects=effects)
        await log.publish(signed(LAYOUT, [decision], key, chain))
        chain = next_chain(chain, encode(decision))
    follower = Follower(log, believing(LAYOUT, public(WRITERS), cell=CELL, from_version=from_version), CELL)
    await follower.start()
    await follower.catch_up()
    await follower.stop()
    return log, follower


async def appending_of(known: str, begin_cells: str) -> Appending:
    """The writer of a placement process that has a key of the cell."""
    log, follower = await read(known)
    layout = believing(LAYOUT, public(WRITERS), cell=CELL, from_version=LOGS[known][0])
    secret = SecretStr(WRITERS.text)
    settings = PlacementSettings(namespace=NAMESPACE, signing_key=secret, begin_cells=begin_cells, cell_file=FILE)
    context = make_context("placement", settings)
    setbacks = Setbacks(context.back_off(), context.back_off())
    clock = ClockWatch(context, log, layout.topic("cells"), 0)
    metrics = CellMetrics(PlacementMetrics(context.registry), CELL)
    return Appending(context, log, layout, follower, clock, setbacks, metrics)


@pytest.mark.parametrize("work", COLUMNS)
@pytest.mark.parametrize("known", LOGS)
async def test_a_process_is_kept_from_what_the_table_says_and_from_nothing_else(known: str, work: str) -> None:
    _, follower = await read(known)
    why = obstacle(COLUMNS[work], follower, FILE)
    is_about_file = known not in ("", NONE_YET)
    words = f"{FILE} {known.format(cell=CELL)}" if is_about_file else known
    assert why == (words if work in KEPT_FROM[known] else None)


@pytest.mark.parametrize("begin_cells", ["", "other", CELL, f"other,{CELL}"])
@pytest.mark.parametrize("known", LOGS)
async def test_a_cell_that_a_person_names_to_begin_is_kept_from_by_all_but_a_log_that_no_key_proves(
    known: str, begin_cells: str
) -> None:
    appending = await appending_of(known, begin_cells)
    is_lifted = known == ALL_FORGED and CELL in begin_cells
    for work, why in (("writing", appending.why_not()), ("taking over", appending.why_not_taken_over())):
        is_kept = work in KEPT_FROM[known] and not is_lifted
        assert (why is not None) is is_kept, work
        assert known.format(cell=CELL) in (why or known.format(cell=CELL))
