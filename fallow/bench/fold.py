"""`fallow bench fold`: how fast the decision log of a real load is folded, from its bytes to the state."""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass
from pathlib import Path
from time import process_time

from rich.console import Console

from fallow.bench.figure import Figure
from fallow.bench.load.processor_time import ProcessorTime, Used
from fallow.bench.load.stages import cell_of, on_stage
from fallow.bench.pipeline import piped
from fallow.cli.log.read_back import records_of
from fallow.local.local_cell import LocalCell, Servers
from fallow.replay.workload import CELL
from fallow.shared.cluster.fold.fold import fold as fold_record
from fallow.shared.cluster.model.state import CellState
from fallow.shared.log.port import Record
from fallow.shared.log.reading import log_record
from fallow.shared.runtime.collector import tune_collector

RATE, SECONDS = 1_000.0, 10.0


@dataclass(frozen=True, slots=True)
class Folded:
    """Effects a second, by processor time: folded from bytes, only decoded, and only parsed as JSON."""

    effects: int
    folded: float
    decoded: float
    parsed: float
    used: Used


def fold(console: Console, *, nodes: int, durable: bool) -> Figure:
    """Run it. Raises StackError, LogUnavailable, LogOverflowed."""

    async def work(stage: LocalCell) -> list[Record]:
        await piped(stage, console, rate=RATE, seconds=SECONDS, nodes=nodes)
        return [record async for record in records_of(stage.log, [stage.layout.tp("decisions", CELL)])]

    async def baseline(records: list[Record], _: Servers, __: Path) -> Folded:
        return timed(records)

    staged = on_stage(console, cell_of(nodes), work, baseline, durable=durable)
    records, found = staged.answer, staged.baseline
    lines = [
        f"{found.folded:,.0f} effects/s folded, decoding included ({found.effects} effects in {len(records)} records)",
        f"only decoded {found.decoded:,.0f}/s; baseline, only parsed by the standard json: {found.parsed:,.0f}/s",
    ]
    body: dict[str, object] = {
        "effects_per_s": round(found.folded),
        "baseline": round(found.parsed),
        "decoded_per_s": round(found.decoded),
        "effects": found.effects,
        "records": len(records),
        "bytes": sum(len(record.value or b"") for record in records),
    }
    return Figure("fold", lines, body, found.used, staged.durable)


def timed(records: list[Record]) -> Folded:
    """Fold the whole log once, from the bytes of its records, with the garbage collector as services have it; before
    that only decode it, and only parse it.
    """
    watch, before = ProcessorTime({}), gc.get_threshold()
    gc.collect()
    tune_collector()
    try:
        begin_s = process_time()
        effects = sum(len(json.loads(record.value or b"{}").get("effects", ())) for record in records)
        parsed_s, begin_s = process_time() - begin_s, process_time()
        for record in records:
            log_record(record, keys=None)
        decoded_s, begin_s = process_time() - begin_s, process_time()
        state = CellState(CELL)
        for record in records:
            fold_record(state, log_record(record, keys=None))
        folded_s = process_time() - begin_s
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
    return Folded(effects, effects / folded_s, effects / decoded_s, effects / parsed_s, watch.used())
