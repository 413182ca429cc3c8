"""`fallow up`: Kafka, Redis, all services and some virtual nodes on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fallow.cli.access import CELL_FILE, PACKAGE, Access, access_of, run
from fallow.cli.arguments.paths import file_to_read, folder_to_write
from fallow.cli.errors.failures import Exit, end_with, refuse
from fallow.cli.output.output import print_line
from fallow.local.data_folder import held
from fallow.local.given_servers import must_speak_in_the_clear, none_answers
from fallow.local.gone_nodes import declare_gone_nodes
from fallow.local.joining import file_in_force, what_is_there
from fallow.local.local_cell import Servers, make_declared_topics, running
from fallow.local.service_set import KINDS, ServiceSet, service_set
from fallow.local.upkeep import Upkeep
from fallow.replay.workload import uniform_nodes
from fallow.services.executor.nodes_file import load_nodes
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.value import replace as replace_value
from fallow.shared.events.fields.values import NodeSpec
from fallow.shared.log.opening import declared_topics
from fallow.shared.near import meant, there
from fallow.shared.runtime.addresses import without_password
from fallow.shared.runtime.stack.child import StackError
from fallow.shared.runtime.stack.choose import choose_kafka, choose_redis
from fallow.shared.runtime.stack.server import Source
from fallow.shared.runtime.stack.services import Services
from fallow.shared.runtime.tasks.cancels import end_tasks

app = typer.Typer()

UPKEEP_END_S = 5.0
REPLICAS_MAX = 64
"""Processes of one service on one machine."""

CPUS_OF_GPU_MILLI, MEMORY_OF_GPU_MIB = 12_000, 131_072
"""What a virtual node has for each of its GPUs: 96 CPUs and 1 TiB beside eight."""

COLOURS = ("36", "32", "33", "35", "34", "96", "92", "93", "95", "94")


@app.command()
def up(  # noqa: PLR0913, PLR0917 - the options of a command
    context: typer.Context,
    nodes: Annotated[int, typer.Option(min=1, max=20_000, help="Virtual nodes, shared out over the cell's pools.")] = 8,
    nodes_file: Annotated[
        Path | None, typer.Option(callback=file_to_read, help="A list of virtual nodes, in place of --nodes.")
    ] = None,
    data: Annotated[
        Path, typer.Option(callback=folder_to_write, help="Where logs, diaries, Kafka and Redis keep their files.")
    ] = Path("out/up"),
    replicas: Annotated[list[str] | None, typer.Option(help="SERVICE=COUNT; may be repeated.")] = None,
    servers_only: Annotated[
        bool, typer.Option("--servers-only", help="Kafka and Redis without services: to move or repair a cell.")
    ] = False,
    join: Annotated[
        bool, typer.Option("--join", help="Also where the cell runs already, or goes by another cell file.")
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="Put the cell file in force, all but its policy, though the cell of --data goes by another one.",
        ),
    ] = False,
) -> None:
    """Run all services on this machine. Kafka and Redis are taken as given, or started; Ctrl-C stops everything. A
    given Kafka must be one without security.

    What dies is started again, later and later while it keeps dying. Only Ctrl-C, a wrong setting and the death of the
    embedded broker end the command.

    Virtual nodes of an earlier run on the same data that are not among these are declared lost once they are silent.

    What is started here keeps its data in --data, except for the embedded broker, which forgets at exit.
    """
    access = access_of(context)
    # A mistake is told before anything is started.
    must_speak_in_the_clear()
    file, counts = access.cells(), _counts(replicas or [])
    if servers_only:
        counts = dict.fromkeys((kind.name for kind in KINDS), 0)
    if nodes_file is not None:
        _check_nodes(nodes_file, file)
    # The choice of a server reads the environment; an option stands above it.
    os.environ.update({"FALLOW_KAFKA": access.kafka or "", "FALLOW_REDIS": access.redis or ""})
    with held(data):
        # With Java's quick compiler alone: up in seconds, and small. Its clients come in the clear: no TLS is slowed.
        kafka, redis = choose_kafka(data / "kafka", durable=True), choose_redis(data / "redis")
        if kafka.server.source is Source.EMBEDDED and max(counts.values(), default=1) > 1:
            end_with(Exit.USAGE, "fallow: --replicas: the embedded broker carries one of each service")
        print_line(f"Kafka: {kafka.explanation()}")
        print_line(f"Redis: {redis.explanation()}")
        _refuse_silent(Servers(kafka, redis))
        if kafka.server.source is Source.GIVEN and not (servers_only or join):
            _refuse_what_is_there(replace(access, kafka=kafka.server.address))
        nodes_path = nodes_file or write_nodes(file, nodes, data)
        _run(access, Servers(kafka, redis), data, nodes_path, counts, may_replace=servers_only or yes)


def _refuse_silent(servers: Servers) -> None:
    """Ends the command where an address was given at which nothing answers: one of an `up` that has ended, perhaps."""
    for name, choice in (("kafka", servers.kafka), ("redis", servers.redis)):
        server = choice.server
        if server.source is Source.GIVEN and none_answers(server.address):
            variable, address = f"FALLOW_{name.upper()}", without_password(server.address)
            told = f"{variable} (or --{name}) names {address}, which does not answer"
            end_with(Exit.AWAY, f"fallow: {told}; unset it and `up` starts its own")


def _refuse_what_is_there(access: Access) -> None:
    """Ends the command where it would begin, without a word, to write another user's cell."""
    if found := run(what_is_there(access)):
        where = f"FALLOW_KAFKA (or --kafka) names {without_password(access.kafka_address)}, where {found}"
        own = "unset FALLOW_KAFKA and FALLOW_REDIS and `up` starts its own"
        end_with(Exit.NO, f"fallow: {where}; {own}, or add --join to run this there too")


def _refuse_other_file(access: Access) -> None:
    """Ends the command where the cell of its own data goes by another cell file: pools, queues and tenants that this
    one lacks would be gone, and jobs held, without a word. One that differs in its policy alone takes nothing away.
    """
    found = run(file_in_force(access))
    if found is None:
        return
    if found.is_policy_alone:
        print_line(f"{found.text}: that comes into force with `fallow cell reload`")
        return
    what = "name that file by --cell-file, or give --yes to put this one in force, all but its policy"
    end_with(Exit.NO, f"fallow: {found.text}; nothing was done: {what}")


def _run(
    access: Access,
    chosen: Servers,
    data: Path,
    nodes_path: Path,
    counts: Mapping[str, int],
    *,
    may_replace: bool,
) -> None:
    """`may_replace`: another cell file than the one in force may take its place, or no service runs."""
    # The thread outlives the servers: the kernel kills what a thread has started when that thread ends.
    before = chosen.kafka.explanation()
    with ThreadPoolExecutor(1, "starts servers") as starter, running(chosen.kafka, chosen.redis) as servers:
        if (now := servers.kafka.explanation()) != before:
            print_line(f"Kafka: {now}")  # its jars are there now, and tell their version
        if servers.is_embedded:
            print_line("The embedded broker forgets everything at exit; name a real one by --kafka HOST:PORT.")
        wanted = _wanted(access, servers, data, nodes_path, counts)
        started = replace(access, kafka=servers.kafka.server.address, redis=servers.redis.server.address)
        if servers.kafka.server.source not in {Source.GIVEN, Source.EMBEDDED} and not may_replace:
            _refuse_other_file(started)
        run(_serve(started, servers, wanted, data, starter, _beside(started, nodes_path, counts)))


def _beside(access: Access, nodes_path: Path, counts: Mapping[str, int]) -> Callable[[], Coroutine[Any, Any, None]]:
    """What goes on while the services run: of nodes that are silent because none is run here, nothing is said."""
    if counts.get("executor", 1):
        return partial(declare_gone_nodes, access, nodes_path, print_line)
    return _nothing


async def _nothing() -> None:
    await asyncio.Event().wait()


async def _serve(
    access: Access,
    servers: Servers,
    wanted: ServiceSet,
    data: Path,
    starter: Executor,
    beside: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """`beside` is what else goes on while the services run."""
    try:
        await make_declared_topics(servers, declared_topics(access.cells(), access.namespace))
    except StackError as error:
        if wanted.specs:
            raise
        print_line(f"fallow: {error}")  # the servers keep running while the user sets that right
    marks = marks_of([spec.name for spec in wanted.specs])
    services = Services(
        wanted.specs,
        environment=wanted.environment,
        run_dir=data / "logs",
        echo=lambda name, line: print_line(line, mark=marks[name]),
    )
    upkeep = Upkeep(services, {"Kafka": servers.kafka.server, "Redis": servers.redis.server}, starter, print_line)
    paste = f"In another terminal: export {variables(access)}"
    # Before the services are ready: one that is fenced never is, and its repair needs the addresses.
    what = "and the services start" if wanted.specs else "without services"
    print_line(f"Kafka and Redis run, {what}. {paste}")
    await _until_stopped(upkeep, f"everything runs. {paste}" if wanted.specs else "", beside)


def variables(access: Access) -> str:
    """What other commands need to know to come to this cell, as a shell takes it. A cell file that was named, or is the
    one of this folder, is another one elsewhere: it is told with its whole path.
    """
    redis = without_password(access.redis or "")
    told = {"FALLOW_KAFKA": access.kafka or "", "FALLOW_REDIS": redis, "FALLOW_NAMESPACE": access.namespace}
    if access.cell_file is not None or access.cell_path.resolve() != (PACKAGE / CELL_FILE).resolve():
        told["FALLOW_CELL_FILE"] = str(access.cell_path.absolute())
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in told.items())


def _wanted(access: Access, servers: Servers, data: Path, nodes_file: Path, counts: Mapping[str, int]) -> ServiceSet:
    return service_set(
        kafka=servers.kafka.server.address,
        redis=servers.redis.server.address,
        namespace=access.namespace,
        cell_file=access.cell_path,
        data_dir=data,
        nodes_file=nodes_file,
        embedded=servers.is_embedded,
        replicas=counts,
        more={"FALLOW_LOG_FORMAT": "console"},
    )


async def _until_stopped(upkeep: Upkeep, told: str, beside: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run until a signal, or until something fails for good: what dies meanwhile is started again. `told` is said once
    everything is ready. A second signal waits for nothing that goes on beside the services.
    """
    begun = asyncio.create_task(upkeep.begin(told), name="services begin")
    kept = asyncio.create_task(upkeep.run(), name="upkeep")
    asked = asyncio.create_task(upkeep.stopping.wait(), name="stop asked")
    other = asyncio.create_task(beside(), name="beside the services")
    tasks = (begun, asked, kept, other)

    def stop() -> None:
        for task in tasks if upkeep.stopping.is_set() else ():
            task.cancel()
        upkeep.stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        await asyncio.wait({asked, kept, begun, other}, return_when=asyncio.FIRST_COMPLETED)
        if begun.done():
            _raise_failure(begun)
            await asyncio.wait({asked, kept, other}, return_when=asyncio.FIRST_COMPLETED)
        for ended in (kept, other):
            _raise_failure(ended)
    finally:
        print_line("stopping")
        upkeep.stopping.set()
        for task in (begun, asked, other):
            task.cancel()
        await asyncio.wait({kept}, timeout=UPKEEP_END_S)
        await end_tasks(*tasks)
        await upkeep.services.stop()


def _raise_failure(task: asyncio.Task[None]) -> None:
    """Raise what the task failed with, if it has. One that a second signal has cancelled is no failure."""
    if task.done() and not task.cancelled():
        task.result()


def marks_of(names: Sequence[str]) -> dict[str, str]:
    """What stands before the lines of each service."""
    width = max(map(len, names), default=0)
    return {name: f"{_prefix(name, width, COLOURS[at % len(COLOURS)])} " for at, name in enumerate(names)}


def _prefix(name: str, width: int, colour: str) -> str:
    text = f"{name:<{width}} |"
    return f"\x1b[{colour}m{text}\x1b[0m" if sys.stdout.isatty() else text


def _counts(replicas: list[str]) -> dict[str, int]:
    counts = {}
    for text in replicas:
        name, _, count = text.partition("=")
        is_count = count.isascii() and count.isdecimal() and len(count) <= len(str(REPLICAS_MAX))
        if not is_count or int(count) > REPLICAS_MAX or name not in {kind.name for kind in KINDS}:
            names = ", ".join(kind.name for kind in KINDS)
            rule = f"must be SERVICE=COUNT, with a count up to {REPLICAS_MAX} and one of {names}"
            refuse("--replicas", text, rule)
        counts[name] = int(count)
    return counts


def _check_nodes(path: Path, file: CellFile) -> None:
    """Ends the command where a node is in a cell or a pool that the cell file does not have. Raises NodesFileError."""
    pools = {cell.name: [pool.name for pool in cell.pools] for cell in file.cells}
    for cell, nodes in load_nodes(path).items():
        if cell not in pools:
            rule = f"cell = {cell!r} is unknown{meant(cell, pools)}: {there(pools)}"
            refuse("--nodes-file", path, rule)
        for node in nodes:
            if node.pool not in pools[cell]:
                rule = f"pool = {node.pool!r} of node {node.id} is unknown: cell {cell} has {', '.join(pools[cell])}"
                refuse("--nodes-file", path, rule)


def write_nodes(file: CellFile, count: int, data: Path) -> Path:
    """So many nodes for each cell, shared out over its virtual pools by their size, at least one in each."""
    lines = []
    for cell in file.cells:
        specs = [node for pool, number in _shares(cell, count) for node in _nodes(cell, pool, number)]
        lines += [f'{{"cell":"{cell.name}","node":{encode(node).decode()}}}\n' for node in specs]
    path = data / "nodes.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _shares(cell: CellPart, count: int) -> list[tuple[Pool, int]]:
    pools = [pool for pool in cell.pools if pool.driver == "virtual"]
    total, left = sum(pool.gpus for pool in pools), count
    shares = []
    for pool in pools[1:]:
        share = min(left - 1, max(1, count * pool.gpus // total))
        shares.append((pool, max(0, share)))
        left -= max(0, share)
    return [*((pool, left) for pool in pools[:1]), *shares]


def _nodes(cell: CellPart, pool: Pool, count: int) -> list[NodeSpec]:
    gpus = pool.gpus_per_node
    beside = {"cpu_milli": gpus * CPUS_OF_GPU_MILLI, "memory_mib": gpus * MEMORY_OF_GPU_MIB}
    nodes = uniform_nodes(count, gpus, pool=pool.name, role=pool.role)
    return [
        replace_value(node, gpu_type=pool.gpu_type, id=f"{cell.name}-{pool.name}-{number:04}", **beside)
        for number, node in enumerate(nodes, start=1)
    ]
