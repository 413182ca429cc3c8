"""`fallow topics`: creates what deploy/kafka/topics.yaml declares, puts the rights of deploy/kafka/access.yaml in
force, and tells in words what differs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.errors.failures import Exit
from fallow.cli.output.counts import counted
from fallow.cli.output.output import AsJson, print_json, print_line
from fallow.shared.log.admin.access_admin import AccessReport, check_access, put_access_in_force
from fallow.shared.log.admin.topic_admin import TopicsReport, check_topics, create_topics, missing_topics
from fallow.shared.log.admin.topics import TopicSpec
from fallow.shared.log.opening import declared_access, declared_topics

app = typer.Typer(no_args_is_help=True, help="Create and check Kafka's topics.")

Replicas = Annotated[int, typer.Option(min=1, help="Copies of each topic: 3 on a real cluster, 1 on one broker.")]
Embedded = Annotated[bool, typer.Option("--embedded", envvar="FALLOW_EMBEDDED", help="It is the embedded broker.")]


@app.command()
def create(context: typer.Context, replicas: Replicas = 1, embedded: Embedded = False, as_json: AsJson = False) -> None:
    """Create missing topics, add partitions, set how long records are kept, and put the declared rights in force."""
    access = access_of(context)
    specs = declared(access, replicas)
    missing = run(missing_topics(access.kafka_access, specs))
    report = run(create_topics(access.kafka_access, specs, replicas=replicas, embedded=embedded))
    rules = frozenset() if embedded else declared_access(access.cells(), access.namespace)
    rights = None if embedded else run(put_access_in_force(access.kafka_access, rules))
    made = [topic for topic in missing if topic not in {found.topic for found in report.differences}]
    if made and not as_json:
        print_line(f"created: {counted(len(made), 'topic')}")
    answer(access, specs, report, rights, as_json=as_json)


@app.command()
def check(context: typer.Context, replicas: Replicas = 1, embedded: Embedded = False, as_json: AsJson = False) -> None:
    """Compare topics and rights with the declared ones."""
    access = access_of(context)
    specs = declared(access, replicas)
    report = run(check_topics(access.kafka_access, specs, embedded=embedded))
    rules = frozenset() if embedded else declared_access(access.cells(), access.namespace)
    rights = None if embedded else run(check_access(access.kafka_access, rules))
    answer(access, specs, report, rights, as_json=as_json)


def declared(access: Access, replicas: int) -> tuple[TopicSpec, ...]:
    """Every topic that the cell file needs. Raises CellFileError, TopicsFileError."""
    return declared_topics(access.cells(), access.namespace, replicas)


def answer(
    access: Access,
    specs: tuple[TopicSpec, ...],
    report: TopicsReport,
    rights: AccessReport | None,
    *,
    as_json: bool,
) -> None:
    """Tell the differences; exit 1 if no service may start on these topics, or rights differ from the declared ones."""
    is_wrong = report.must_stop or (rights is not None and not rights.is_as_declared)
    if as_json:
        print_json(
            {
                "ok": not is_wrong,
                "topics": len(specs),
                "differences": [
                    {"topic": found.topic, "kind": found.kind.value, "text": found.text} for found in report.differences
                ],
                "rights_checked": rights is not None,
                "rights_differences": [] if rights is None else rights.left.lines(),
                "rights_removed": [] if rights is None else [str(rule) for rule in rights.removed],
            }
        )
    else:
        for line in _lines(access, specs, report, rights):
            print_line(line)
    if is_wrong:
        raise typer.Exit(Exit.NO)


def _lines(
    access: Access, specs: tuple[TopicSpec, ...], report: TopicsReport, rights: AccessReport | None
) -> list[str]:
    lines = [found.text for found in report.differences]
    if not lines:
        where = f"of namespace {access.namespace} at {access.kafka_address}"
        lines.append(f"{counted(len(specs), 'topic')} {where} are as declared")
    if rights is None:
        lines.append("rights: the broker checks none, every client may read and write every topic")
    else:
        lines += [f"removed: {rule}" for rule in rights.removed]
        lines += rights.left.lines() or ["rights: as declared"]
    return lines
