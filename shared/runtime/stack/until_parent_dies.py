"""Becomes another program that the kernel kills when its parent dies.

    python until_parent_dies.py PARENT_PID PROGRAM ARGUMENT...

A parent that is killed by SIGKILL cannot clean up behind itself; on Linux the kernel does it. The signal is sent when
the *thread* that started the program ends, so programs are started from a thread that lives as long as they should.
Elsewhere the program simply runs, and the parent stops it when it ends in order.
"""

from __future__ import annotations

import os
import sys

PR_SET_PDEATHSIG = 1
SIGKILL = 9


def main() -> None:
    """Asks for the signal, then becomes the program; ends at once when the parent was faster."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - only Linux has the call

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)
    os.execvp(program[0], program)  # noqa: S606 - becoming that program is the purpose


if __name__ == "__main__":
    main()
