"""Where the `fallow` command begins: an interrupt while it is still being loaded shows no traceback either."""

from __future__ import annotations

import sys

from fallow.cli.interrupts import INTERRUPTED, Interrupts


def main() -> None:
    """Run the command line."""
    interrupts = Interrupts()
    interrupts.listen()
    try:
        from fallow.cli.app import main as run  # noqa: PLC0415 - this takes most of the first second

        run()
    except KeyboardInterrupt:
        sys.exit(interrupts.code_of(INTERRUPTED))
    except SystemExit as ended:
        sys.exit(interrupts.code_of(ended.code))
