"""`fallow demo`: a generated day of jobs in fast motion, on real services, with nothing installed but Python."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fallow.cli.errors.failures import Exit
from fallow.cli.output.counts import counted
from fallow.cli.output.output import AsJson, print_json
from fallow.replay.generate import DAY_MS, generate
from fallow.replay.report.report import show_report, write_report
from fallow.replay.run_session import Plan, folder_for, run_of
from fallow.shared.runtime.extras import must_be_installed
from fallow.shared.runtime.stack import valkey
from fallow.shared.runtime.stack.choose import Choice, choose_kafka, choose_redis
from fallow.shared.runtime.stack.embedded_broker import EmbeddedBroker
from fallow.shared.runtime.stack.server import Source

app = typer.Typer()

NAMESPACE = "demo"
SPEED = 3_200.0
"""A day in 27 seconds."""


@app.command()
def demo(
    count: Annotated[int, typer.Option(min=1, help="Jobs of the day.")] = 600,
    nodes: Annotated[int, typer.Option(min=1, help="Virtual nodes of 8 GPUs.")] = 64,
    seed: Annotated[int, typer.Option(help="The same seed makes the same day.")] = 1,
    speed: Annotated[float, typer.Option(min=1, max=1_000_000, help="Cell time for one unit of wall time.")] = SPEED,
    keep: Annotated[bool, typer.Option("--keep", help="Keep logs, diaries and jobs.csv.")] = False,
    as_json: AsJson = False,
) -> None:
    """Schedule a generated day of jobs on virtual nodes, in fast motion, and check that nothing was lost.

    FALLOW_KAFKA and FALLOW_REDIS name a real Kafka and Redis; without them both are started here.
    """
    if not os.environ.get("FALLOW_KAFKA"):
        must_be_installed("confluent_kafka")
    console = Console(stderr=as_json)
    workload = generate(count=count, nodes=nodes, seed=seed)
    with folder_for("fallow-demo-", keep=keep, console=console) as folder:
        kafka, redis = kafka_for_demo(folder / "kafka"), redis_for_demo(folder / "redis")
        console.print(what_this_is(kafka, redis), highlight=False, soft_wrap=True)
        console.print(
            f"{counted(count, 'job')} on {counted(nodes, 'node')}: a day in {DAY_MS / speed / 1000:.0f} s, "
            "then on until the last job is over",
            highlight=False,
        )
        namespace = NAMESPACE if kafka.server.source is Source.EMBEDDED else f"{NAMESPACE}-{os.getpid()}"
        report = run_of(Plan(workload, kafka, redis, namespace, folder, speed), console)
        if keep:
            write_report(report, workload, folder)
    if as_json:
        print_json(report.as_json())
    else:
        show_report(report, console)
    raise typer.Exit(Exit.OK if report.is_good else Exit.NO)


def kafka_for_demo(folder: Path) -> Choice:
    """The embedded broker, unless FALLOW_KAFKA asks for something else. Raises StackError."""
    return choose_kafka(folder) if os.environ.get("FALLOW_KAFKA") else Choice(EmbeddedBroker(folder), ())


def redis_for_demo(folder: Path) -> Choice:
    """Valkey from the wheel, unless FALLOW_REDIS asks for something else or there is none. Raises StackError."""
    program = valkey.program_in_wheel()
    if os.environ.get("FALLOW_REDIS") or isinstance(program, str):
        return choose_redis(folder)
    return Choice(valkey.Valkey(program, folder), ())


def what_this_is(kafka: Choice, redis: Choice) -> str:
    """One line: what is embedded, and what that means."""
    if kafka.server.source is Source.EMBEDDED:
        return (
            f"Embedded: {kafka.server.description} and {redis.server.description}; the broker forgets everything at "
            "exit. For a real one: FALLOW_KAFKA=host:port FALLOW_REDIS=redis://host:port/0 fallow demo"
        )
    return f"Kafka: {kafka.explanation()}. Redis: {redis.explanation()}"
