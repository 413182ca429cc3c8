"""`fallow agent`: the agent of this machine."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from fallow.cli.access import Access, access_of
from fallow.cli.arguments.paths import folder_to_write
from fallow.cli.errors.failures import Exit, end_with, refuse
from fallow.services.executor.node_registration import WrongOffer, home_of, offer_of
from fallow.services.executor.processes.machine import count_devices
from fallow.shared.cluster.model.config import Pool
from fallow.shared.events.fields.values import DEVICES_MAX, LABELS_MAX, NodeSpec
from fallow.shared.events.validation.rules_told import ID_RULE, rule_broken

app = typer.Typer()


@app.command()
def agent(
    context: typer.Context,
    node: Annotated[str, typer.Option(help="The node's id, in practice its host name.", show_default=False)],
    pool: Annotated[str, typer.Option(help="The pool to which it belongs; driver: process.", show_default=False)],
    gpus: Annotated[str, typer.Option(help="How many GPUs it has; auto counts NVIDIA's devices.")] = "auto",
    cell: Annotated[str | None, typer.Option(help="The cell, to be sure; a pool belongs to one.")] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            callback=folder_to_write, help="What must outlive the agent; out/agents/NODE if none.", show_default=False
        ),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE; may be repeated. address=HOST: how other nodes reach it.")
    ] = None,
) -> None:
    """Offer this machine to a cell and run the jobs that are placed on it, as processes of the agent's user.

    Ctrl-C ends the agent and not its workers: the next agent goes on with them, and without one they end with the
    node's lease.
    """
    access = access_of(context)
    labels = _labels(label or [])
    found = _home(access, pool, cell)
    _offer(node, found, 0, labels)  # that node and pool do not go together is told also where no GPUs are found
    spec = _offer(node, found, _gpus(gpus), labels)
    state = (state_dir or Path("out/agents") / spec.id).resolve()
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "FALLOW_KAFKA": access.kafka_address,
        "FALLOW_NAMESPACE": access.namespace,
        "FALLOW_CELL_FILE": str(access.cell_path),
        "FALLOW_NODE": spec.id,
        "FALLOW_NODE_GPUS": str(spec.gpus),
        "FALLOW_NODE_POOL": spec.pool,
        "FALLOW_NODE_LABELS": json.dumps(labels),
        "FALLOW_STATE_DIR": str(state),
        "FALLOW_LOG_FORMAT": os.environ.get("FALLOW_LOG_FORMAT", "console" if sys.stdout.isatty() else "json"),
    }
    # The agent takes this process's place, so that signals and the exit code are its own.
    os.execve(sys.executable, [sys.executable, "-P", "-m", "fallow.services.executor", "agent"], environment)  # noqa: S606


OPTIONS = {"id": "--node", "pool": "--pool", "gpus": "--gpus", "labels": "--label"}
"""The option from which a field of a node comes."""


def _gpus(text: str) -> int:
    """Raises NoDevices."""
    if text == "auto":
        return count_devices()
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(DEVICES_MAX))
    if not is_number or int(text) > DEVICES_MAX:
        rule = f"must be a number up to {DEVICES_MAX}, or auto"
        refuse("--gpus", text, rule)
    return int(text)


def _labels(texts: list[str]) -> dict[str, str]:
    labels = dict[str, str]()
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            refuse("--label", text, "must be KEY=VALUE")
        if key in labels:
            refuse("--label", text, f"{key} stands twice")
        labels[key] = value
    if len(labels) > LABELS_MAX:
        end_with(Exit.USAGE, f"fallow: --label: is given {len(labels)} times: a node has at most {LABELS_MAX} labels")
    return labels


def _home(access: Access, pool: str, cell: str | None) -> Pool:
    """The pool to which the node belongs. Raises CellFileError."""
    try:
        return home_of(access.cells(), pool, None if cell is None else access.cell(cell))[1]
    except WrongOffer as error:
        file = "" if access.cell_file is not None else "FALLOW_CELL_FILE is not set, so it is "
        end_with(Exit.USAGE, f"fallow: --{error} (cell file: {file}{access.cell_path})")


def _offer(node: str, pool: Pool, gpus: int, labels: dict[str, str]) -> NodeSpec:
    """What the agent will join with: a mistake is told here. Raises WrongOffer."""
    try:
        return offer_of(node, pool, gpus, labels)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = str(first["loc"][0])
        is_odd_id = field == "id" and first["type"] == "string_pattern_mismatch"
        refuse(OPTIONS[field], first["input"], ID_RULE if is_odd_id else rule_broken(first))
