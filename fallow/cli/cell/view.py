"""`fallow view`: what Redis must hold before a service with few rights can use it, and which user may do what there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.arguments.paths import Replace, file_to_write, folder_to_read, must_be_free
from fallow.cli.errors.failures import Exit, end_with, refuse
from fallow.cli.output.output import AsJson, print_json, print_line
from fallow.shared.runtime.files.text_file import TextFileError, read_text_file
from fallow.shared.view.access.redis_users import users_and_source
from fallow.shared.view.access.users import ADMIN, UserDifference, acl_file, declared_users, user_differences
from fallow.shared.view.library import LIBRARY, library_difference, library_digest
from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.whole_file import whole_file

app = typer.Typer(no_args_is_help=True, help="Put the view's functions into Redis; make and check its users.")

PASSWORD_FEWEST = 12

Row = dict[str, str | None]

Passwords = Annotated[
    Path,
    typer.Option(
        callback=folder_to_read, help="A folder with a file for each user and for admin, which holds its password."
    ),
]
Out = Annotated[Path | None, typer.Option(callback=file_to_write, help="Where the file goes; standard output if none.")]


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


@app.command()
def users(context: typer.Context, passwords: Passwords, out: Out = None, yes: Replace = False) -> None:
    """Write an ACL file for Redis (its setting `aclfile`): a user for each task, with hashed passwords."""
    if out is not None:
        must_be_free("--out", out, replaces=yes)
    namespace = access_of(context).namespace
    text = acl_file(namespace, {name: _password(passwords / name) for name in (ADMIN, *declared_users(namespace))})
    if out is None:
        for line in text.splitlines():
            print_line(line)
    else:
        try:
            with whole_file(out) as part:
                part.write_text(text, encoding="utf-8")
        except OSError as error:
            end_with(Exit.USAGE, f"fallow: {out}: cannot be written: {error.strerror}")


def _password(file: Path) -> str:
    """The one line of this file. Ends the command where it is no password."""
    try:
        lines = read_text_file(file, may_be_pipe=True).splitlines()
    except TextFileError as error:
        if not file.exists():
            refuse("--passwords", file.parent, f"must hold a file {file.name}, with the password of that user")
        refuse("--passwords", file, str(error))
    if len(lines) != 1 or len(lines[0]) < PASSWORD_FEWEST or lines[0] != lines[0].strip():
        refuse(
            "--passwords", file, f"must hold one line of at least {PASSWORD_FEWEST} characters, without spaces around"
        )
    return lines[0]


@app.command()
def check(context: typer.Context, as_json: AsJson = False) -> None:
    """Compare Redis's users and functions with the declared ones, as its administrator."""
    access = access_of(context)
    users, source = run(users_and_source(access.redis_address))
    rows = [*map(_row, user_differences(access.namespace, users)), *_of_library(source)]
    if as_json:
        print_json({"ok": not rows, "differences": rows})
    else:
        well = f"users and functions at {access.redis_shown} are as declared"
        for line in [row["text"] for row in rows] or [well]:
            print_line(line or "")
    if rows:
        raise typer.Exit(Exit.NO)


def _row(difference: UserDifference) -> Row:
    return {"user": difference.user, "text": difference.text}


def _of_library(source: str | None) -> list[Row]:
    text = library_difference(source)
    return [] if text is None else [{"user": None, "text": text}]
