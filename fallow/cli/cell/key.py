"""`fallow cell key`: makes the pair of keys with which a writer signs decisions and readers believe them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fallow.cli.arguments.paths import file_to_write
from fallow.cli.errors.failures import Exit, end_with
from fallow.cli.output.output import AsJson, print_json, print_line

PRIVATE_MODE = 0o600


def key(
    file: Annotated[
        Path,
        typer.Argument(
            callback=file_to_write, help="Where the private key goes: no file that is there.", show_default=False
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Make a pair of keys. The private one is written to a file that only its owner may read, for the secret
    `fallow_signing_key` of placement; the public one is printed as the cell file wants it.
    """
    from fallow.shared.log.keys.ed25519 import SigningKey  # noqa: PLC0415 - keeps `fallow --help` quick

    made = SigningKey.made()
    try:
        write_private(file, made.text)
    except FileExistsError:
        end_with(Exit.USAGE, f"fallow: {file}: is there already, and may hold a key that is in use: name another file")
    except OSError as error:
        end_with(Exit.USAGE, f"fallow: {file}: cannot be written: {error.strerror}")
    if as_json:
        print_json({"file": str(file), "public": made.public})
    else:
        print_line(f"- public: {made.public}")


def write_private(file: Path, text: str) -> None:
    """Write it whole into a file that is new and its owner's alone from the first moment. Raises OSError."""
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_MODE)
    with os.fdopen(opened, "w", encoding="ascii") as output:
        output.write(f"{text}\n")
        output.flush()
        os.fsync(output.fileno())
