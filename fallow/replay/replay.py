"""`fallow replay`: a trace of jobs on a set of services of its own."""

import secrets
import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fallow.cli.arguments.paths import count_or_file, file_to_read, folder_to_write, is_count
from fallow.cli.errors.failures import Exit
from fallow.cli.output.output import AsJson, print_json
from fallow.replay.report.report import show_report, write_report
from fallow.replay.run_session import Plan, folder_for, run_of
from fallow.replay.trace import counted_nodes, read_nodes, read_trace, workload_of
from fallow.replay.workload import Workload, WorkloadError
from fallow.shared.events.fields.values import DEVICES_MAX
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.runtime.stack.choose import choose_kafka, choose_redis

app = typer.Typer()

SPEED = 1_000.0


@app.command()
def replay(  # noqa: PLR0913, PLR0917 - the options of a command
    jobs: Annotated[Path, typer.Option(callback=file_to_read, help="Jobs, as CSV or CSV.gz.", show_default=False)],
    nodes: Annotated[
        str, typer.Option(callback=count_or_file, help="How many nodes, or a file of nodes.", show_default=False)
    ],
    carry: Annotated[
        Path | None, typer.Option(callback=file_to_read, help="Jobs that run already at the beginning.")
    ] = None,
    gpus_per_node: Annotated[
        int, typer.Option(min=1, max=DEVICES_MAX, help="GPUs of each node, where nodes are counted.")
    ] = 8,
    policy: Annotated[QueueDiscipline, typer.Option(help="Order of the queue.")] = QueueDiscipline.BEST_EFFORT_FIFO,
    speed: Annotated[
        float | None, typer.Option(min=0.001, max=1_000_000, help=f"Cell time for one of wall time ({SPEED:g}).")
    ] = None,
    lockstep: Annotated[
        bool, typer.Option("--lockstep", help="Step the clock: waits are the scheduler's alone.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many of the earliest jobs.")] = None,
    out: Annotated[
        Path | None, typer.Option(callback=folder_to_write, help="Folder for jobs.csv, summary.json, diaries and logs.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Feed a trace of jobs to services of its own on virtual nodes, and tell how the jobs fared.

    Columns of a trace: job_id, tenant, submit_s, gpus, workers, gpus_per_worker, gpu_type, duration_s, kind. The
    Kafka and the Redis are those of FALLOW_KAFKA and FALLOW_REDIS, or the most real ones that this machine has;
    topics and keys get a namespace of their own there.
    """
    if lockstep and speed is not None:
        raise WorkloadError("--lockstep and --speed exclude each other: a stepped clock has no speed")
    console = Console(stderr=as_json)
    workload = workload_for(jobs, nodes, carry, gpus_per_node, policy, limit)
    with folder_for("fallow-replay-", keep=False, console=console) as folder:
        kafka, redis = choose_kafka(folder / "kafka", quick_start=False), choose_redis(folder / "redis")
        namespace = f"replay-{secrets.token_hex(4)}"
        told = f"Kafka: {kafka.explanation()}\nRedis: {redis.explanation()}\nnamespace: {namespace}"
        console.print(told, highlight=False, soft_wrap=True)
        pace = None if lockstep else speed or SPEED
        report = run_of(Plan(workload, kafka, redis, namespace, folder, pace), console)
        if out is not None:
            write_report(report, workload, out)
            for part in ("diaries", "logs"):
                shutil.copytree(folder / part, out / part, dirs_exist_ok=True)
    if as_json:
        print_json(report.as_json())
    else:
        show_report(report, console)
    raise typer.Exit(Exit.OK if report.is_good else Exit.NO)


def workload_for(
    jobs: Path, nodes: str, carry: Path | None, gpus_per_node: int, policy: QueueDiscipline, limit: int | None
) -> Workload:
    """The trace on these nodes. Raises WorkloadError."""
    trace = read_trace(jobs, carry, limit)
    if is_count(nodes):
        return workload_of(trace, counted_nodes(int(nodes), gpus_per_node), policy, typed=False)
    return workload_of(trace, read_nodes(Path(nodes)), policy, typed=True)
