"""Where the `fallow` command begins: an interrupt while it is still being loaded shows no traceback either."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""The code of a shell for what SIGINT has ended; typer's, too."""


def main() -> None:
    """Run the command line."""
    try:
        from fallow.cli.app import main as run  # noqa: PLC0415 - this takes most of the first second

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
