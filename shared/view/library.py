"""The functions that run inside Redis: the files of `lua/` as one library.

The library's name and the functions' names hold the form of the rows, so that services of two releases can work side
by side. A change of a function without a change of that form replaces the library, which its digest tells.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from pathlib import Path

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.view.keys import SCHEMA

LIBRARY = f"fallow_{SCHEMA}"

FILES = (
    "checks",
    "rows",
    "queue_order",
    "apply",
    "begin_rebuild",
    "load_rows",
    "finish_rebuild",
    "fence",
    "read_cursor",
    "read_job",
    "read_jobs",
    "read_nodes",
    "read_tenants",
    "read_names",
    "read_arrays",
    "read_queue",
    "read_summary",
    "digest",
)
"""In the order in which they need each other."""


@cache
def library_source() -> str:
    """The text for FUNCTION LOAD."""
    folder = Path(__file__).parent / "lua"
    statuses = ", ".join(f"{status} = true" for status in JobStatus)
    texts = [(folder / f"{name}.lua").read_text(encoding="utf-8") for name in FILES]
    body = "\n".join([f"local STATUSES = {{ {statuses} }}", *texts])
    digest = blake2b(body.encode(), digest_size=8).hexdigest()
    head = f"#!lua name={LIBRARY}\nlocal SCHEMA = '{SCHEMA}'\nlocal DIGEST = '{digest}'\n"
    return head + body


@cache
def library_digest() -> str:
    """What the loaded library says of itself if it is this one."""
    marker = "local DIGEST = '"
    source = library_source()
    start = source.index(marker) + len(marker)
    return source[start : source.index("'", start)]


def library_difference(source: str | None) -> str | None:
    """How the text of a loaded library (None: none is loaded) differs from this one; None where it does not."""
    if source == library_source():
        return None
    if source is None:
        return f"missing: library {LIBRARY} (`fallow view load` puts it there)"
    return (
        f"library {LIBRARY} is not that of this release: another release, or a user with the loader's password, has"
        " put it there (`fallow view load` replaces it)"
    )


def function(name: str) -> str:
    """The full name of a function."""
    return f"fallow_{name}_{SCHEMA}"
