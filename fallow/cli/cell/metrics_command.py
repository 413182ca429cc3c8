"""`fallow metrics`: how well a cell did, from its log alone, by the same code as the live service."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.errors.failures import Exit, end_with
from fallow.cli.log.past import Past, Then, past_of, then
from fallow.cli.output.counts import counted
from fallow.cli.output.durations import duration, moment
from fallow.cli.output.output import AsJson, CellName, print_json, print_sentence, print_table
from fallow.services.metrics.policy.figures import Figures
from fallow.services.metrics.policy.report import report_of
from fallow.services.metrics.policy.size_classes import in_gpus

app = typer.Typer()

At = Annotated[
    str | None, typer.Option(metavar="VERSION|TIME", help="As they stood then; the newest if none.", show_default=False)
]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME|VERSION", help="Of what came after; since the log begins if none.", show_default=False),
]

SPARE = ("P50", "P95", "MEAN")
"""What is left out first of waits and of stretches where there is little width."""


@app.command()
def metrics(
    context: typer.Context, at: At = None, since: Since = None, cell: CellName = None, as_json: AsJson = False
) -> None:
    """GAR, SOR, GFR, waiting times (JWTD) and estimated stretch of training (JTTED) of a cell, its pools and tenants,
    from the decision log alone. What each of them means stands in docs/metrics.md.
    """
    access = access_of(context)
    name = access.cell(cell)
    begin = None if since is None else then("--since", since)
    found = run(_figures(access, name, begin, Then() if at is None else then("--at", at)))
    if as_json:
        print_json(found)
    else:
        _tell(found)


async def _figures(access: Access, cell: str, since: Then | None, until: Then) -> dict[str, Any]:
    async with past_of(access, cell, since or Then(version=0)) as past:
        return await figures_between(past, since, until)


async def figures_between(past: Past, since: Then | None, until: Then) -> dict[str, Any]:
    """The figures from one moment to another. Where the log begins with a snapshot, it is from that on."""
    state = past.state if since is None else await past.go_to(since, may_be_before=True)
    if since is not None and not until.includes(state.version, state.at_ms):
        end_with(Exit.USAGE, f"fallow: --at {until} is before --since {since}")
    begins_ms = None if since is None or since.at_ms is None else max(state.at_ms, since.at_ms)
    companion = _Figures(Figures(state, begins_ms) if state.version else None)
    await past.go_to(until, companion)
    figures = companion.figures or Figures(state)
    figures.look(state)
    until_ms = max(figures.since_ms, _end_ms(past, until))
    return {"cell": state.cell, "version": state.version, **report_of(figures, until_ms)}


def _end_ms(past: Past, until: Then) -> int:
    """Up to when the figures are: in a cell at rest jobs wait on and hold GPUs behind the last decision, too."""
    if until.version is not None:
        return past.state.at_ms
    if until.at_ms is None:
        return past.now_ms
    return until.at_ms if past.goes_on else min(until.at_ms, past.now_ms)


class _Figures:
    """Figures that begin with the first decision where they begin with the log: before it there is no time."""

    def __init__(self, figures: Figures | None) -> None:
        self.figures = figures

    def before(self, state: Any, at_ms: int) -> None:
        """The state up to the next decision."""
        if self.figures is None:
            self.figures = Figures(state, at_ms)
        self.figures.before(state, at_ms)

    def take(self, state: Any, decision: Any) -> None:
        """The decision, and the state behind it."""
        assert self.figures is not None, "before() comes first"
        self.figures.take(state, decision)


def _tell(found: dict[str, Any]) -> None:
    span = found["until_ms"] - found["from_ms"]
    print_sentence(
        f"cell {found['cell']} at version {found['version']}: {duration(span)} from {moment(found['from_ms'])} "
        f"to {moment(found['until_ms'])}, {counted(found['decisions'], 'decision')}"
    )
    oldest = f", the oldest for {duration(found['waiting_oldest_ms'])}" if found["waiting_jobs"] else ""
    wait = "waits" if found["waiting_jobs"] == 1 else "wait"
    print_sentence(f"{counted(found['waiting_jobs'], 'job')} {wait}{oldest}")
    rows = [("cell", found), *((f"pool {name}", pool) for name, pool in found["pools"].items())]
    print_table(
        "GPUs allocated (GAR), GPU time held (SOR), nodes fragmented (GFR)",
        ("", ">GAR NOW", ">GAR MEAN", ">SOR", ">GFR NOW", ">GFR MEAN"),
        [(name, *_shares(row, "gar_now", "gar_mean", "sor", "gfr_now", "gfr_mean")) for name, row in rows],
    )
    tenants = found["tenants"].items()
    print_table(
        "tenants: their part of the whole cell",
        ("TENANT", ">GAR NOW", ">GAR MEAN", ">SOR", ">WAITING"),
        [(name, *_shares(row, "gar_now", "gar_mean", "sor"), row["waiting_jobs"]) for name, row in tenants],
    )
    _tell_distributions(found)
    _tell_errors(found)


def _tell_errors(found: dict[str, Any]) -> None:
    """Where jobs have ended of which anything was expected."""
    rows = [
        (
            name,
            row["count"],
            *(f"{row[key]:.2f}" for key in ("p50", "p95", "p99")),
            f"{row['too_short'] / row['count']:.0%}",
        )
        for name, row in found["run_time_errors"].items()
    ]
    if rows:
        print_table(
            "run times, by which factor they were expected wrongly at the start, by estimator",
            ("", ">JOBS", ">P50", ">P95", ">P99", ">TOO SHORT"),
            rows,
        )


def _tell_distributions(found: dict[str, Any]) -> None:
    kinds = (
        *((in_gpus(name), found["jwtd"].get(name), found["jtted"].get(name)) for name in _classes(found)),
        *((f"pool {name}", row["jwtd"], row["jtted"]) for name, row in found["pools"].items()),
        *((f"tenant {name}", row["jwtd"], row["jtted"]) for name, row in found["tenants"].items()),
    )
    print_table(
        "waits from submission to first start (JWTD)",
        ("", ">JOBS", ">MEAN", ">P50", ">P95", ">P99", ">LONGEST"),
        [(name, *_waits(waits)) for name, waits, _ in kinds if waits and waits["count"]],
        SPARE,
    )
    print_table(
        f"training time, in parts of that in the best place (JTTED): an estimate by the model '{found['jtted_model']}'",
        ("", ">STARTS", ">MEAN", ">P50", ">P95", ">P99", ">LONGEST"),
        [(name, *_stretches(stretches)) for name, _, stretches in kinds if stretches and stretches["count"]],
        SPARE,
    )


def _classes(found: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys((*found["jwtd"], *found["jtted"])))


def _shares(row: dict[str, Any], *keys: str) -> list[str]:
    return ["-" if row[key] is None else f"{row[key]:.1%}" for key in keys]


def _waits(waits: dict[str, Any]) -> list[Any]:
    keys = ("mean_ms", "p50_ms", "p95_ms", "p99_ms", "longest_ms")
    return [waits["count"], *(duration(round(waits[key])) for key in keys)]


def _stretches(stretches: dict[str, Any]) -> list[Any]:
    return [stretches["count"], *(f"{stretches[key]:.3f}" for key in ("mean", "p50", "p95", "p99", "longest"))]
