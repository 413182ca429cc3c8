"""How a command ends when it cannot do what it was asked: one line for people, one code for scripts."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection
from enum import IntEnum
from pathlib import Path
from typing import NoReturn

import typer

from fallow.cli.arguments.typed import with_words_cut
from fallow.cli.output.wrapping import wrapped
from fallow.shared.runtime.errors.several_lines import ErrorOfSeveralLines
from fallow.shared.runtime.extras import how_to_install
from fallow.shared.runtime.files.signs import visible
from fallow.shared.unshown import without_secrets

OWN = str(Path(__file__).parents[2])
"""A file of our own that is missing is a defect."""

VALUE_CHARS_MAX = 120
"""At most so many characters of a value are shown."""


class Exit(IntEnum):
    """The exit codes of every command."""

    OK = 0
    NO = 1  # the answer is no: rejected, refused, an offence, not found
    USAGE = 2  # an option, an id or a file that cannot be used
    AWAY = 3  # Kafka, Redis or a service does not answer
    BEFORE = 4  # a job of this id was submitted before and is over: nothing new runs


def say(text: str) -> None:
    """One line for people on standard error: standard output belongs to the answer. A secret in it is masked, and what
    was typed is cut where it is long.
    """
    short = with_words_cut(without_secrets(text), sys.argv[1:], os.environ)
    sys.stderr.write(f"{wrapped(visible(short), sys.stderr)}\n")


def say_error(error: Exception, text: str) -> None:
    """What went wrong; a line for each mistake, where the error tells of several."""
    for line in text.split("\n") if isinstance(error, ErrorOfSeveralLines) else [text]:
        say(line)


def end_with(code: Exit, text: str) -> NoReturn:
    """Say why, and end the command."""
    say(text)
    raise typer.Exit(code)


def refuse(name: str, value: object, rule: str) -> NoReturn:
    """End the command because an option or argument cannot have this value."""
    text = str(value)
    shown = text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 3]}..."
    end_with(Exit.USAGE, f"fallow: {name} = {shown!r}: {rule}")


def explain(error: Exception) -> tuple[Exit, str] | None:
    """Code and line of an error that a user can do something about; None for a defect of Fallow."""
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        if error.name in NOT_IN_IMAGE:
            text = "this image holds what services need: install Fallow where you measure or simulate"
            return Exit.USAGE, f"{error.name} is not installed: {text}"
        missing = how_to_install(error.name)
        return None if missing is None else (Exit.USAGE, missing)
    for kind in type(error).__mro__:
        for code, known in _KNOWN.items():
            if kind.__name__ in known:
                what = ". Begin with: fallow log repair" if kind.__name__ == "UnreadableRecords" else ""
                return code, (str(error) or type(error).__name__) + what
    if isinstance(error, OSError) and isinstance(error.filename, str) and not error.filename.startswith(OWN):
        # A folder that looked as if it could be used, and cannot: below /proc, on a disk that is full.
        return Exit.USAGE, f"{error.filename}: {error.strerror}"
    return None


_PLACE = re.compile(r"(no )?(Kafka|Redis) at (.+?)(?=: )")


def without_address(code: Exit, text: str, given: Collection[str]) -> str:
    """The line, with what gave the address that it names, or what to do where none was given and nothing answers at the
    one that is taken then. `given` are the servers, Kafka or Redis, of which one was.
    """
    found = _PLACE.search(text) if code is Exit.AWAY else None
    if found is None:
        return text
    no_command, what, where = found.groups()
    if no_command is None or what in given:
        return f"{text[: found.end()]} (--{what.lower()}, FALLOW_{what.upper()}){text[found.end() :]}"
    return (
        f"FALLOW_{what.upper()} is not set, and no {what} answers at {where}: "
        "paste the line `export FALLOW_KAFKA=... FALLOW_REDIS=...` that `fallow up` printed"
    )


NOT_IN_IMAGE = ("fallow.bench", "fallow.faults", "fallow.simulate", "fallow.simulator")
"""The container image leaves these out (`.dockerignore`)."""

# By name, so that no command pays for importing what it does not use.
_KNOWN: dict[Exit, frozenset[str]] = {
    Exit.AWAY: frozenset(
        {
            *("ClientUnavailable", "LogUnavailable", "LogTruncated", "NoUsableSnapshot"),
            *("ViewUnavailable", "ViewRebuilding", "ViewMoved", "ViewMisused"),
            *("StackError", "Unanswered", "Stuck", "NodesAway"),
        }
    ),
    Exit.USAGE: frozenset(
        {
            *("CellFileError", "JobFileError", "LogFileError", "ArchiveError", "DiaryError", "TopicsFileError"),
            "DiaryUnreadable",
            "AccessFileError",
            *(
                "SettingsError",
                "WorkloadError",
                "RecordTooLarge",
                "WrongOffer",
                "NoDevices",
                "NodesFileError",
                "DataFolderInUse",
                "FolderOfAnotherFormat",
                "OutputFails",
            ),
        }
    ),
    Exit.NO: frozenset(
        {
            "DamagedLog",
            "DamagedSnapshot",
            "LogOverflowed",
            "LogRefused",
            "NotRepairable",
            "UnreadableRecords",
            "WrongTopics",
        }
    ),
}
