"""`fallow topics`: creates what deploy/kafka/topics.yaml declares, and tells in words what differs."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.access import Access, access_of, run
from services.cli.counts import counted
from services.cli.failures import Exit
from services.cli.output import AsJson, print_json, print_line
from shared.log.opening import declared_topics
from shared.log.topic_admin import TopicsReport, check_topics, create_topics
from shared.log.topics import TopicSpec

app = typer.Typer(no_args_is_help=True, help="Create and check Kafka's topics.")

Replicas = Annotated[int, typer.Option(min=1, help="Copies of each topic: 3 on a real cluster, 1 on one broker.")]
Embedded = Annotated[bool, typer.Option("--embedded", envvar="FALLOW_EMBEDDED", help="It is the embedded broker.")]


@app.command()
def create(context: typer.Context, replicas: Replicas = 1, embedded: Embedded = False, as_json: AsJson = False) -> None:
    """Create what is missing, let grow what may grow, and set how long records are kept; change nothing else."""
    access = access_of(context)
    specs = declared(access, replicas)
    report = run(create_topics(access.kafka_access, specs, replicas=replicas, embedded=embedded))
    answer(access, specs, report, as_json=as_json)


@app.command()
def check(context: typer.Context, replicas: Replicas = 1, embedded: Embedded = False, as_json: AsJson = False) -> None:
    """Compare what is there with what is declared."""
    access = access_of(context)
    specs = declared(access, replicas)
    answer(access, specs, run(check_topics(access.kafka_access, specs, embedded=embedded)), as_json=as_json)


def declared(access: Access, replicas: int) -> tuple[TopicSpec, ...]:
    """Every topic that the cell file needs. Raises CellFileError, TopicsFileError."""
    return declared_topics(access.cells(), access.namespace, replicas)


def answer(access: Access, specs: tuple[TopicSpec, ...], report: TopicsReport, *, as_json: bool) -> None:
    """Tell the differences; exit 1 if no service may start on them."""
    if as_json:
        print_json(
            {
                "ok": not report.must_stop,
                "topics": len(specs),
                "differences": [
                    {"topic": found.topic, "kind": found.kind.value, "text": found.text} for found in report.differences
                ],
            }
        )
    else:
        for found in report.differences:
            print_line(found.text)
        if not report.differences:
            print_line(f"{counted(len(specs), 'topic')} at {access.kafka_address} are as declared")
    if report.must_stop:
        raise typer.Exit(Exit.NO)
