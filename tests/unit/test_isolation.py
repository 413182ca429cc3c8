"""Every consumer of ours reads only what a transaction has committed."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).parents[2]
MADE = re.compile(r"AIOKafkaConsumer\((?P<settings>(?:[^()]|\([^()]*\))*)\)")


def test_no_consumer_reads_what_is_not_committed() -> None:
    made = [
        (str(path.relative_to(TOP)), found["settings"])
        for folder in ("fallow", "services", "shared")
        for path in sorted((TOP / folder).rglob("*.py"))
        for found in MADE.finditer(path.read_text(encoding="utf-8"))
        if "class " not in path.read_text(encoding="utf-8")[: found.start()].rpartition("\n")[2]
    ]
    assert [path for path, settings in made if "isolation_level=" not in settings] == []
    assert made, "the pattern finds the consumers that are made by hand"
