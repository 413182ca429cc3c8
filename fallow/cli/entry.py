"""Where the `fallow` command begins: an interrupt while it is still being loaded shows no traceback either."""

from __future__ import annotations

import sys
from traceback import clear_frames

from fallow.cli.errors.interrupts import INTERRUPTED, Interrupts

NO_MEMORY = 2
"""As of a file that cannot be used (fallow.cli.errors.failures, which may not have been loaded yet)."""


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
    except MemoryError as error:
        clear_frames(error.__traceback__)  # what they hold is what there was no room for
        sys.stderr.write("fallow: there is not enough memory for this\n")
        sys.exit(NO_MEMORY)
