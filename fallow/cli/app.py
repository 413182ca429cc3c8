"""The `fallow` command. A subcommand's module is imported when it is called, so that help comes at once."""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from fallow.cli.access import DEFAULT_KAFKA, DEFAULT_REDIS, Access
from fallow.cli.arguments.digits_alone import read_digits_alone
from fallow.cli.arguments.given_once import check_given_once, refuse_repeated
from fallow.cli.arguments.given_text import no_text
from fallow.cli.arguments.paths import file_to_read
from fallow.cli.errors.failures import Exit, explain, say, say_error, without_address
from fallow.cli.errors.wrong_use import WrongValue, in_one_line
from fallow.cli.output.output_stream import drop_output, open_streams
from fallow.shared.runtime.addresses import KAFKA_RULE, REDIS_RULE, is_kafka, is_redis, without_password

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("local.up", "Run all services on this machine, with Kafka and Redis if need be."),
    "demo": ("replay.demo", "Schedule a generated day of jobs on virtual nodes, in fast motion."),
    "replay": ("replay.replay", "Feed a trace of jobs to a set of services of its own."),
    "feed": ("replay.feed_command", "Submit a generated day of jobs to a cell that runs, in fast motion."),
    "submit": ("cli.job.submit", "Submit the jobs of a file."),
    "jobs": ("cli.job.jobs", "List jobs."),
    "cancel": ("cli.job.cancel", "Stop jobs."),
    "job": ("cli.job.group", "One job: `job ID` tells its story; show, list, cancel, hold, release, scale."),
    "queue": ("cli.queue.queue", "Queues: list waiting jobs in the order of their turns, with why and until when."),
    "nodes": ("cli.node.nodes", "List nodes with their free GPUs."),
    "node": ("cli.node.node", "Close nodes for new work, empty, open, plan: show, list, maintain, lost, ..."),
    "tenant": ("cli.quota.tenant", "Tenants: list them with use and quota; shares, now and of late."),
    "quota": ("cli.quota.quota", "Show and change how much of which GPU type each tenant may use."),
    "policy": ("cli.cell.policy", "Show and change the numbers by which a cell decides."),
    "metrics": (
        "cli.cell.metrics_command",
        "How well a cell does: GAR, SOR, GFR, waits, estimated stretch of training.",
    ),
    "topics": ("cli.cell.topics", "Create and check Kafka's topics."),
    "view": ("cli.cell.view", "Put the view's functions into Redis; make and check its users."),
    "log": ("cli.log.log", "Read the decision log: tail, show, at, diff, why, export; repair it."),
    "snapshot": ("cli.cell.snapshot", "Move a cell to another Kafka: export, import."),
    "dead-letters": ("cli.log.dead_letters", "What could not be handled: list, show, replay."),
    "verify": ("cli.verify.verify_command", "Check the decision log, and everything that was made from it."),
    "service": ("local.run_service", "Run one service in the foreground."),
    "agent": ("cli.node.agent", "Offer this machine to a cell, and run its jobs as processes."),
    "cell": ("cli.cell.cell", "Check a cell file; have the services read it again: check, reload."),
    "faults": ("faults.faults", "Run the services in simulated worlds full of faults, and judge them."),
    "case": ("simulate.case", "Run conformance cases on the services, in virtual time."),
    "simulate": ("simulate.simulate", "Run a trace under several policies in virtual time, side by side."),
    "bench": ("bench.command", "Measure the whole system on this machine."),
}
"""Each command, in the order of the help: the module of `fallow` that holds it as `app`, and its line of help."""


class LazyGroup(TyperGroup):
    """A group whose commands are imported one by one, when they are called."""

    _is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        """All names, without importing anything."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - typer's signature
        """The command; while help lists them all, only its name and its line."""
        if cmd_name not in COMMANDS:
            return None
        module, line = COMMANDS[cmd_name]
        if self._is_listing:
            return TyperCommand(name=cmd_name, help=line)
        single = importlib.import_module(f"fallow.{module}").app
        single._add_completion = False  # noqa: SLF001 - completion belongs to `fallow`, not to each of its commands
        command = typer.main.get_command(single)
        command.name = cmd_name
        unwrap_help(command)
        refuse_repeated(command)
        read_digits_alone(command)
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As every group, but that an option with one value stands once."""
        check_given_once(self, ctx, args)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Help without the price of every command."""
        self._is_listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_listing = False


def unwrap_help(command: Any) -> None:
    """Take the line breaks of docstrings out of the help, of groups too: the terminal breaks each paragraph anew."""
    if command.help:
        command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help)
    for each in getattr(command, "commands", {}).values():
        unwrap_help(each)


app = typer.Typer(cls=LazyGroup, pretty_exceptions_enable=False, no_args_is_help=True)

KAFKA_SOURCES = ("docker", "jars", "embedded")
REDIS_SOURCES = ("docker", "path", "wheel")
"""What `up` and the like can start, where no address is given (shared/runtime/stack/choose.py)."""

NAMESPACE_RULE = "must be 1 to 64 of a-z, 0-9, dot, dash and underscore, and begin and end with a letter or digit"
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")


def kafka_address(value: str | None) -> str | None:
    """An address, or the name of a Kafka to start."""
    if value and value not in KAFKA_SOURCES and not is_kafka(value):
        raise WrongValue(without_password(value), f"{KAFKA_RULE}; `up` also takes {', '.join(KAFKA_SOURCES)}")
    return value


def redis_address(value: str | None) -> str | None:
    """A URL, or the name of a Redis to start."""
    if value and value not in REDIS_SOURCES and not is_redis(value):
        raise WrongValue(without_password(value), f"{REDIS_RULE}; `up` also takes {', '.join(REDIS_SOURCES)}")
    return value


def namespace_name(value: str) -> str:
    """A name that topics and keys can begin with."""
    if _NAMESPACE.fullmatch(value) is None:
        raise WrongValue(value, NAMESPACE_RULE)
    return value


Kafka = Annotated[
    str | None,
    typer.Option(envvar="FALLOW_KAFKA", callback=kafka_address, help=f"Kafka's address; {DEFAULT_KAFKA} if none."),
]
Redis = Annotated[
    str | None,
    typer.Option(envvar="FALLOW_REDIS", callback=redis_address, help=f"Redis's URL; {DEFAULT_REDIS} if none."),
]
Namespace = Annotated[
    str, typer.Option(envvar="FALLOW_NAMESPACE", callback=namespace_name, help="First word of all topics and keys.")
]
CellFileOption = Annotated[
    Path | None,
    typer.Option(
        envvar="FALLOW_CELL_FILE", callback=file_to_read, help="Cells, pools, tenants; deploy/cell.yaml if none."
    ),
]


def show_version(is_asked: bool) -> None:
    """Print the version of the installed package, and end."""
    if is_asked:
        from importlib.metadata import version  # noqa: PLC0415 - keeps `fallow --help` quick

        sys.stdout.write(f"fallow {version('fallow')}\n")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and end.")
]


@app.callback()
def options(
    context: typer.Context,
    kafka: Kafka = None,
    redis: Redis = None,
    namespace: Namespace = "fallow",
    cell_file: CellFileOption = None,
    version: Version = False,
) -> None:
    """One scheduler for the training jobs and the inference services of a GPU cluster. No GPU lies fallow.

    Exit codes: 0 done, 1 the answer is no, 2 wrong use, 3 a server is silent.

    Of `submit` also 4: a job was submitted before and is over.
    """
    context.obj = Access(kafka or None, redis or None, namespace, cell_file)


def servers_given(words: Sequence[str]) -> list[str]:
    """Of which servers an address was given, by the environment or by an option."""
    options = [word.partition("=")[0] for word in words]
    # The folder of secrets may hold the URL of Redis.
    variables = {"Kafka": ("FALLOW_KAFKA",), "Redis": ("FALLOW_REDIS", "FALLOW_SECRETS_DIR")}
    is_set = {name: any(os.environ.get(each) for each in names) for name, names in variables.items()}
    return [name for name in variables if is_set[name] or f"--{name.lower()}" in options]


def main() -> None:
    """Run the command line. What a user can do something about is one line on standard error, never a traceback."""
    # What its libraries log on the way to an error says the error itself.
    logging.basicConfig(level=logging.CRITICAL)
    if not open_streams():
        say("fallow: standard output is closed: the answer goes nowhere; give /dev/null if that is meant")
        sys.exit(Exit.USAGE)
    if why := no_text(sys.argv[1:], os.environ):
        say(f"fallow: {why}")
        sys.exit(Exit.USAGE)
    try:
        # Commands end by typer.Exit, whose code comes back; they return nothing themselves.
        code = app(prog_name="fallow", standalone_mode=False) or Exit.OK
        sys.stdout.flush()
        sys.exit(code)
    except typer.TyperException as error:
        if type(error).__name__ != "NoArgsIsHelpError":  # it has shown the help
            say(in_one_line(error))
        sys.exit(Exit.USAGE)
    except BrokenPipeError:
        # The reader of the output closed it: it has read enough.
        drop_output()
        sys.exit(Exit.OK)
    except Exception as error:
        known = explain(error)
        if known is None:
            raise
        code, text = known
        say_error(error, f"fallow: {without_address(code, text, servers_given(sys.argv))}")
        sys.exit(code)
