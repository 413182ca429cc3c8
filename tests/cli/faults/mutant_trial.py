"""Imports the code below a folder and runs one world of it. Told a folder and lines of JSON on standard input: texts to
put into files first. Answers each line with one of its own: "", or why the code does not run.

All that the code imports from elsewhere is imported once, before the first mutant, and its files are compiled once: so
each mutant costs its own code and no more.
"""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

SEED = 35
"""A short world in which much happens."""

CODE = "fallow"
WORLDS = f"{CODE}.faults.fault_worlds"


def import_what_is_not_ours() -> None:
    """A process of its own tells what the code imports, so that no module of the code is left here."""
    for name in forked(_modules_elsewhere).split():
        with contextlib.suppress(ImportError):  # a part of another module, which brings it
            import_module(name)


def _modules_elsewhere() -> str:
    import_module(WORLDS)
    return "\n".join(name for name in list(sys.modules) if name.partition(".")[0] not in (CODE, "__mp_main__"))


def forked(told_there: Callable[[], str]) -> str:
    """What is told in a process of its own, which leaves no module behind."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.write(writing, told_there().encode()[:60_000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    return told if status == 0 else f"the process ended with {status}"


def tried(root: Path, texts: dict[str, str]) -> str:
    """Why the code does not run, or ""."""
    try:
        for name, text in texts.items():
            (root / name).unlink()
            (root / name).write_text(text, encoding="utf-8")
        worlds, mutants = import_module(WORLDS), import_module(f"{CODE}.faults.mutants")
        violation = worlds.tell(worlds.Story(SEED)).violation
    except Exception:  # noqa: BLE001 - whatever it is, it is the answer
        return traceback.format_exc()
    return violation[1] if violation is not None and mutants.is_broken(violation[1]) else ""


def main() -> None:
    root = Path(sys.argv[1])
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(root))
    compileall.compile_dir(str(root), quiet=2)
    import_what_is_not_ours()
    for line in sys.stdin:
        texts = json.loads(line)
        before = {name: (root / name).read_text(encoding="utf-8") for name in texts}
        sys.stdout.write(json.dumps(forked(partial(tried, root, texts))) + "\n")
        sys.stdout.flush()
        for name, text in before.items():
            (root / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
