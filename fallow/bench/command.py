"""`fallow bench`: the figures of the whole system on this machine."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fallow.cli.arguments.paths import file_and_column, file_to_read, folder_to_write
from fallow.cli.errors.failures import refuse
from fallow.cli.output.output import AsJson

if TYPE_CHECKING:
    from fallow.bench.figure import Figure


class Mix(StrEnum):
    """What jobs `pipeline` sends."""

    REAL = "real"
    FRIENDLY = "friendly"


app = typer.Typer(no_args_is_help=True, help="Measure the whole system on this machine.")

Nodes = Annotated[int, typer.Option(min=1, help="Virtual nodes of 8 GPUs.")]
Flush = Annotated[
    bool,
    typer.Option(
        "--flush/--no-flush", help="Kafka, where it is started here, has each record on disk before its answer."
    ),
]
Placement = Annotated[
    str | None, typer.Option(help="The placement policy of the cell; as shipped if none.", show_default=False)
]
Secured = Annotated[
    bool,
    typer.Option(
        "--secured",
        help="In turn also with SASL, TLS, users and signed decisions, on servers started here; both, and their ratio.",
    ),
]
Rounds = Annotated[
    int | None, typer.Option(min=1, max=20, help="Of --secured: so many of each cell (3).", show_default=False)
]
MixOf = Annotated[
    Mix, typer.Option(help="real: 50 tenants that borrow, gangs, failures; friendly: three sizes of one tenant.")
]
Rate = Annotated[
    float | None,
    typer.Option(
        min=1,
        max=100_000,
        help="Jobs sent in a second. None: of real 90 % of what is held in trials, of friendly 5000.",
        show_default=False,
    ),
]
NODES = 5_000
FRIENDLY_PER_S = 5_000
JOBS = 150_000


@app.callback()
def group() -> None:
    """Measure the whole system on this machine, each figure beside a baseline of the same run.

    Kafka and Redis are those of FALLOW_KAFKA and FALLOW_REDIS, or are started here; Kafka must be a real one, and has
    each record on disk before it answers, as that of `fallow up`. With --no-flush it has not, and the figure says so. A
    figure says how many cores others used meanwhile; above 0.3 it says "busy" and is no measure of a quiet machine.
    """


@app.command()
def pipeline(  # noqa: PLR0913, PLR0917 - the options of a command
    mix: MixOf = Mix.REAL,
    rate: Rate = None,
    backlog: Annotated[
        int, typer.Option(min=0, max=500_000, help="Of real: so many wait all the time; new ones come as others end.")
    ] = 0,
    classes: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="Of real: so many different sorts of jobs (2000).", show_default=False),
    ] = None,
    seconds: Annotated[float, typer.Option(min=2, max=3_600, help="For so long.")] = 60,
    nodes: Nodes = NODES,
    quotas: Annotated[
        bool, typer.Option("--quotas", help="Of friendly: half of what is used is borrowed, and limits at two levels.")
    ] = False,
    records_by_node: Annotated[
        bool,
        typer.Option("--records-by-node", help="Of real: each node writes records of its own, as agents do."),
    ] = False,
    placement: Placement = None,
    secured: Secured = False,
    rounds: Rounds = None,
    flush: Flush = True,
    as_json: AsJson = False,
) -> None:
    """How many jobs a second go through the cell, from their submission to their start, with all services running."""
    from fallow.bench.load.stages import cell_of, policy_with  # noqa: PLC0415 - help stays quick
    from fallow.bench.pipeline import COMPARED  # noqa: PLC0415 - the same
    from fallow.bench.pipeline import pipeline as friendly  # noqa: PLC0415 - the same
    from fallow.bench.real.pipeline import Asked, real_pipeline  # noqa: PLC0415 - the same

    console, policy = _console(as_json=as_json), policy_with(placement)
    if mix is Mix.REAL:
        if quotas:
            refuse("--quotas", True, "--mix real always has quotas; leave it out, or take --mix friendly")
        asked = Asked(nodes, seconds, classes, rate, backlog, durable=flush, by_node=records_by_node, policy=policy)
        measure = partial(real_pipeline, console, asked)
    else:
        _refuse_what_is_for_real(backlog or None, classes, records_by_node or None)
        cell, rate = cell_of(nodes, policy, has_quotas=quotas), FRIENDLY_PER_S if rate is None else rate
        measure = partial(friendly, console, cell, rate=rate, seconds=seconds, durable=flush, has_quotas=quotas)
    _measured(console, measure, COMPARED, secured=secured, rounds=rounds).show(as_json=as_json)


def _refuse_what_is_for_real(backlog: int | None, classes: int | None, records_by_node: bool | None) -> None:
    named = {"--backlog": backlog, "--classes": classes, "--records-by-node": records_by_node}
    for name, value in named.items():
        if value is not None:
            refuse(name, value, "is for --mix real")


def _measured(
    console: Console, measure: "Callable[..., Figure]", keys: Sequence[str], *, secured: bool, rounds: int | None
) -> "Figure":
    """The figure of the plain cell, with the secured one's beside it where that is asked for."""
    from fallow.bench.compared import ROUNDS, beside_secured  # noqa: PLC0415 - help stays quick

    if not secured and rounds is not None:
        refuse("--rounds", rounds, "is for --secured")
    if not secured:
        return measure(secured=None)
    return beside_secured(console, lambda is_it: measure(secured=is_it), keys, rounds or ROUNDS)


@app.command()
def overload(
    rate: Annotated[
        float | None,
        typer.Option(
            min=1, max=50_000, help="Jobs a second that the cell holds; searched if none.", show_default=False
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(min=2, max=600, help="Twice the capacity is offered for so long.")] = 20,
    nodes: Nodes = NODES,
    flush: Flush = True,
    as_json: AsJson = False,
) -> None:
    """How much goes through at twice what the cell holds, and how soon the backlog is gone at half of it."""
    from fallow.bench.overload import overload as run  # noqa: PLC0415 - help stays quick

    run(_console(as_json=as_json), rate=rate, seconds=seconds, nodes=nodes, durable=flush).show(as_json=as_json)


@app.command()
def latency(
    seconds: Annotated[float, typer.Option(min=2, max=3_600, help="For so long at each rate.")] = 20,
    nodes: Nodes = NODES,
    placement: Placement = None,
    secured: Secured = False,
    rounds: Rounds = None,
    flush: Flush = True,
    as_json: AsJson = False,
) -> None:
    """How long a job waits for its start in a cell with room, at 200 and at 1,000 jobs a second."""
    from fallow.bench.latency import COMPARED  # noqa: PLC0415 - help stays quick
    from fallow.bench.latency import latency as run  # noqa: PLC0415 - the same
    from fallow.bench.load.stages import policy_with  # noqa: PLC0415 - the same

    console = _console(as_json=as_json)
    measure = partial(run, console, policy_with(placement), seconds=seconds, nodes=nodes, durable=flush)
    _measured(console, measure, COMPARED, secured=secured, rounds=rounds).show(as_json=as_json)


@app.command()
def fold(nodes: Nodes = NODES, flush: Flush = True, as_json: AsJson = False) -> None:
    """How fast the decision log of a load is folded, from its bytes to the state."""
    from fallow.bench.fold import fold as run  # noqa: PLC0415 - the same

    run(_console(as_json=as_json), nodes=nodes, durable=flush).show(as_json=as_json)


@app.command()
def start(
    nodes: Nodes = NODES,
    jobs: Annotated[int, typer.Option(min=1, help="Live jobs in the snapshot.")] = JOBS,
    flush: Flush = True,
    as_json: AsJson = False,
) -> None:
    """How long a cold start takes, from the start of the processes to the first job that they start.

    No executor runs: what nodes load and say is not in the figure.
    """
    from fallow.bench.load.big_cell import Live  # noqa: PLC0415 - the same
    from fallow.bench.start import PAST  # noqa: PLC0415 - the same
    from fallow.bench.start import start as run  # noqa: PLC0415 - the same

    run(_console(as_json=as_json), nodes=nodes, live=Live(jobs, past=PAST), durable=flush).show(as_json=as_json)


@app.command()
def memory(
    nodes: Nodes = NODES,
    jobs: Annotated[int, typer.Option(min=1, help="Live jobs in the snapshot.")] = JOBS,
    rate: Annotated[float, typer.Option(min=1, help="Jobs sent in a second, for the growth.")] = 4_000,
    seconds: Annotated[
        float, typer.Option(min=2, max=36_000, help="For so long: 500 s at 4,000/s are two million jobs.")
    ] = 30,
    remembered: Annotated[int, typer.Option(min=1, help="Ended jobs that the cell remembers.")] = 1_000_000,
    flush: Flush = True,
    as_json: AsJson = False,
) -> None:
    """How much memory each process holds with many live jobs, and how much it grows with finished ones."""
    from fallow.bench.memory import memory as run  # noqa: PLC0415 - the same

    run(
        _console(as_json=as_json),
        nodes=nodes,
        jobs=jobs,
        rate=rate,
        seconds=seconds,
        remembered=remembered,
        durable=flush,
    ).show(as_json=as_json)


@app.command()
def recover(
    nodes: Nodes = NODES,
    jobs: Annotated[int, typer.Option(min=1, help="Live jobs in the state.")] = 100_000,
    flush: Flush = True,
    as_json: AsJson = False,
) -> None:
    """How long the cell starts no job when its writer is killed, and readers have no view when Redis is flushed.

    No executor runs: what nodes load and say is not in the figure.
    """
    from fallow.bench.recover import recover as run  # noqa: PLC0415 - the same

    run(_console(as_json=as_json), nodes=nodes, jobs=jobs, durable=flush).show(as_json=as_json)


@app.command()
def place(as_json: AsJson = False) -> None:
    """How fast placement decides by itself, without Kafka and Redis: workers a second, large gangs, a plain "no"."""
    from fallow.bench.place import place as run  # noqa: PLC0415 - the same

    run().show(as_json=as_json)


@app.command()
def workers(
    count: Annotated[int, typer.Option("--workers", min=1, max=500, help="So many in each round, twice.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, max=20, help="So many of each.")] = 3,
    as_json: AsJson = False,
) -> None:
    """How soon a worker is a process of this machine, isolated by a user of its own beside not; for root alone both."""
    from fallow.bench.workers import workers as run  # noqa: PLC0415 - help stays quick

    run(_console(as_json=as_json), count=count, rounds=rounds).show(as_json=as_json)


@app.command()
def cycle(
    nodes: Nodes = NODES,
    seconds: Annotated[float, typer.Option(min=0.1, max=600, help="For so long at each backlog.")] = 6,
    crowd: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Also beside so many jobs of one tenant, no two alike.")
    ] = 0,
    backlog: Annotated[
        list[int] | None, typer.Option(min=1, max=1_000_000, help="Only behind so many jobs; may stand several times.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What a start costs behind 900, 20,000 and 100,000 waiting jobs of 1, 250 and 2,000 classes, in one process."""
    from fallow.bench.cycle import BACKLOGS  # noqa: PLC0415 - the same
    from fallow.bench.cycle import cycle as run  # noqa: PLC0415 - the same

    run(_console(as_json=as_json), nodes, seconds, crowd, backlog or BACKLOGS).show(as_json=as_json)


@app.command()
def openb(  # noqa: PLR0913, PLR0917 - the options of a command
    pods: Annotated[
        Path, typer.Option(callback=file_to_read, help="Pods of the openb trace, as CSV or CSV.gz.", show_default=False)
    ],
    nodes: Annotated[Path, typer.Option(callback=file_to_read, help="Its nodes, likewise.", show_default=False)],
    seeds: Annotated[int, typer.Option(min=1, max=1_000, help="So many runs, each with its own draw of pods.")] = 10,
    first_seed: Annotated[int, typer.Option(help="The seed of the first run.")] = 42,
    policy: Annotated[
        str, typer.Option(help="fallow, or a rule to compare it with: random, best-fit, fgd.")
    ] = "fallow",
    draw: Annotated[
        str, typer.Option(help="replacement: draw all pods; simulator: the trace once and draw the rest.")
    ] = "replacement",
    out: Annotated[
        Path | None, typer.Option(callback=folder_to_write, help="Folder for placements.csv and nodes.csv.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How much of a cluster can be handed out while pods with shares of GPUs come, and nothing leaves (FGD, ATC'23)."""
    from fallow.bench.openb.command import openb_or_end as run  # noqa: PLC0415 - the same

    run(pods, nodes, range(first_seed, first_seed + seeds), policy, draw, out).show(as_json=as_json)


@app.command()
def k1(flush: Flush = True, as_json: AsJson = False) -> None:
    """How long 15,000 jobs of 30 borrowing queues take, end to end: the baseline workload of Kueue's own tests."""
    from fallow.bench.borrowing.contended import contended as run  # noqa: PLC0415 - the same
    from fallow.bench.borrowing.contention import K1  # noqa: PLC0415 - the same

    run(_console(as_json=as_json), K1, durable=flush).show(as_json=as_json)


@app.command()
def k2(flush: Flush = True, as_json: AsJson = False) -> None:
    """How long 50,000 jobs of 1,000 borrowing queues take, end to end: the large workload of Kueue's own tests."""
    from fallow.bench.borrowing.contended import contended as run  # noqa: PLC0415 - the same
    from fallow.bench.borrowing.contention import K2  # noqa: PLC0415 - the same

    run(_console(as_json=as_json), K2, durable=flush).show(as_json=as_json)


@app.command()
def z1(flush: Flush = True, as_json: AsJson = False) -> None:
    """How long a cold start takes with 4,888 nodes, 87,031 jobs and 149,711 workers, as Volcano was reported with.

    No executor runs: what nodes load and say is not in the figure.
    """
    from fallow.bench.start import volcano_start as run  # noqa: PLC0415 - the same

    run(_console(as_json=as_json), durable=flush).show(as_json=as_json)


@app.command()
def l1(flush: Flush = True, as_json: AsJson = False) -> None:
    """How long a job that fits waits behind 536 that do not, on 1,300 nodes: the shape that was reported of Kueue."""
    from fallow.bench.borrowing.deep_queue import deep_queue as run  # noqa: PLC0415 - the same

    run(_console(as_json=as_json), durable=flush).show(as_json=as_json)


@app.command()
def a1(
    case: Annotated[
        list[str] | None, typer.Option(help="Only this case; several times. All but k if none.", show_default=False)
    ] = None,
    nodes: Annotated[int, typer.Option(min=20, max=10_000, help="Virtual nodes of 8 GPUs; KAI has 500.")] = 500,
    flush: Flush = True,
    as_json: AsJson = False,
) -> None:
    """How long KAI-Scheduler's own scale cases take, each on a cell of its own in which jobs may yield, beside what it
    published: fills, reclaims, consolidation, topology and "no". Case k is a burst of three quarters of an hour.
    """
    from fallow.bench.kai.a1 import a1 as run  # noqa: PLC0415 - help stays quick
    from fallow.bench.kai.a1 import cases_of  # noqa: PLC0415 - the same

    run(_console(as_json=as_json), cases_of(case), nodes=nodes, durable=flush).show(as_json=as_json)


@app.command()
def kant(
    traces: Annotated[
        str | None, typer.Option(envvar="FALLOW_TRACES", help="Folder of the Philly fold and Kalos' jobs.")
    ] = None,
    trace: Annotated[list[str] | None, typer.Option(help="philly, kalos or generated; all if none.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the generated week, and of estimates.")] = 1,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Order of queues + way to place, in place of those compared; several times."),
    ] = None,
    estimates: Annotated[str | None, typer.Option(help="What jobs tell of run times, as in `fallow simulate`.")] = None,
    out: Annotated[
        Path | None, typer.Option(callback=folder_to_write, help="Folder for tables of each run, and plots.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """E-Binpack against other ways to place, and the orders of queues against each other, in Kant's figures."""
    from fallow.bench.kant.kant import kant as run  # noqa: PLC0415 - the same
    from fallow.bench.kant.kant import ways_of  # noqa: PLC0415 - the same
    from fallow.bench.kant.traces import names_of  # noqa: PLC0415 - the same
    from fallow.simulate.estimates import estimates_of  # noqa: PLC0415 - the same

    ways, told = ways_of(policy), None if estimates is None else estimates_of(estimates)
    names = names_of(trace)
    run(traces, names, seed=seed, out=out, as_json=as_json, ways=ways, estimates=told).show(as_json=as_json)


@app.command()
def aryl(  # noqa: PLR0913, PLR0917 - the options of a command
    jobs: Annotated[
        Path, typer.Option(callback=file_to_read, help="Jobs of the trace, as CSV or CSV.gz.", show_default=False)
    ],
    demand: Annotated[
        str,
        typer.Option(
            callback=file_and_column,
            help="FILE:COLUMN: what part of the inference servers is busy.",
            show_default=False,
        ),
    ],
    carry: Annotated[
        Path | None, typer.Option(callback=file_to_read, help="Jobs that run at time 0; in no statistic.")
    ] = None,
    nodes: Annotated[
        list[int] | None, typer.Option(min=1, max=100_000, help="Training servers of 8; several times: each (404).")
    ] = None,
    placed: Annotated[
        bool, typer.Option("--placed/--pooled", help="Training workers sit on servers, or in one pool of GPUs.")
    ] = False,
    scenario: Annotated[
        list[str] | None,
        typer.Option(help="basic, advanced, heterogeneous, ideal, loaning, scaling; basic if none."),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="fifo, sjf, lyra and so on; all that the scenario has if none.")
    ] = None,
    first_seed: Annotated[int, typer.Option(help="The seed of the first draw.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, max=1_000, help="So many draws of which jobs are elastic.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(callback=folder_to_write, help="Folder for jobs.csv of each run; a series goes on from there."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Loans, reclaims and elastic jobs of Lyra (Aryl), what it was compared with, and the bounds, on one trace."""
    from fallow.bench.aryl.command import Wanted, aryl_or_end  # noqa: PLC0415 - help stays quick

    wanted = Wanted(jobs, carry, demand, tuple(nodes or (404,)), is_placed=placed, out=out)
    aryl_or_end(wanted, scenario or ["basic"], policy or [], range(first_seed, first_seed + seeds)).show(
        as_json=as_json
    )


def _console(*, as_json: bool) -> Console:
    return Console(stderr=as_json)
