"""The folders that processes keep for themselves, and the version of what stands in each."""

from __future__ import annotations

from fallow.shared.events.base import LANGUAGE
from fallow.shared.runtime.files.folder_format import FolderFormat

# Files name jobs as the language does: a folder of another language would be read wrongly.
AGENT = FolderFormat("agent", f"{LANGUAGE}.1")
"""An agent's state folder: boots, runs, leases, and diaries."""

DIARIES = FolderFormat("diaries", f"{LANGUAGE}.1")
"""The folder `diaries` of executors, below the one that they are given."""

DATA = FolderFormat("data", f"{LANGUAGE}.1")
"""What `fallow up` keeps: the files of Kafka, Redis and its services."""

ALL = (AGENT, DIARIES, DATA)
