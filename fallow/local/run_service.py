"""`fallow service`: one service in the foreground, as a container runs it."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from fallow.cli.access import access_of
from fallow.cli.errors.failures import refuse
from fallow.local.service_set import KINDS

app = typer.Typer()

NAMES = tuple(kind.name for kind in KINDS)


@app.command()
def service(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}.", autocompletion=lambda: list(NAMES))],
) -> None:
    """Run one service in the foreground until it is stopped. All other settings come from the environment."""
    kind = next((kind for kind in KINDS if kind.name == name), None)
    if kind is None:
        refuse("NAME", name, f"must be one of {', '.join(NAMES)}")
    access = access_of(context)
    environment = {
        **os.environ,
        "FALLOW_KAFKA": access.kafka_address,
        "FALLOW_REDIS": access.redis_address,
        "FALLOW_NAMESPACE": access.namespace,
        "FALLOW_CELL_FILE": str(access.cell_path),
    }
    # The service takes this process's place, so that signals and the exit code are its own.
    os.execve(sys.executable, [sys.executable, "-P", "-m", kind.module], environment)  # noqa: S606
