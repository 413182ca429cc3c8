"""`fallow view`: what Redis must hold before a service with few rights can use it."""

from __future__ import annotations

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.output.output import AsJson, print_json, print_line
from fallow.shared.view.library import LIBRARY, library_digest
from fallow.shared.view.redis_view import RedisFunctions

app = typer.Typer(no_args_is_help=True, help="Put the view's functions into Redis.")


@app.callback()
def group() -> None:
    """Put the view's functions into Redis."""


@app.command()
def load(context: typer.Context, as_json: AsJson = False) -> None:
    """Load the functions, unless they are there as they are here."""
    access = access_of(context)
    run(_load(access))
    if as_json:
        print_json({"ok": True, "library": LIBRARY, "digest": library_digest()})
    else:
        print_line(f"library {LIBRARY} at {access.redis_shown} is as it should be")


async def _load(access: Access) -> None:
    functions = RedisFunctions(access.redis_address)
    try:
        await functions.load()
    finally:
        await functions.stop()
