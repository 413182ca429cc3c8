"""`fallow tenant`: the tenants of a cell."""

from __future__ import annotations

import typer

from fallow.cli.quota.shares import shares
from fallow.cli.quota.tenants import tenants

app = typer.Typer(no_args_is_help=True, help="List tenants with their use and quota; show their fair shares.")
app.command("list")(tenants)
app.command()(shares)
