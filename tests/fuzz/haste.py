"""Every way in, with large inputs: none of them may hold its process up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.fuzz.campaign import FINDINGS_MAX, Finding, Tally, attempt, shrink
from tests.fuzz.entries import Entry
from tests.fuzz.entries_of_files import file_entries
from tests.fuzz.entries_of_readers import log_entries, view_entries
from tests.fuzz.entries_of_services import admission_entries, placement_entries
from tests.fuzz.entries_of_state import state_entries
from tests.fuzz.pace import too_long
from tests.fuzz.vast import Vast


class TooSlow(AssertionError):
    """A turn has taken longer than any may."""


def all_entries(folder: Path) -> list[Entry]:
    """Every way in; `folder` is where files are put."""
    services = [*admission_entries(), *placement_entries(), *log_entries(), *view_entries()]
    return [*services, *file_entries(folder), *state_entries(folder)]


def vast_of(entry: Entry) -> Vast:
    return Vast(entry.seeds, lines=entry.lines, bytes_max=entry.bytes_max)


def in_time(entry: Entry, value: bytes) -> str:
    """The last word of the work on this input. Raises TooSlow."""
    word, wrong = too_long(entry.work, value, entry.within_ms)
    if wrong is not None:
        raise TooSlow(wrong)
    return word


def hasten(entries: Sequence[Entry], each: int, seed: int) -> Tally:
    """So many large inputs for each entry, drawn from the seed; at least one."""
    tally, random = Tally(), Random(seed)
    for entry in entries:
        vast, ends = vast_of(entry), dict[str, None]()

        def run(value: bytes, entry: Entry = entry) -> str:
            return in_time(entry, value)

        for value in vast.draw_some(random, each):
            if len(tally.findings) >= FINDINGS_MAX:
                return tally
            word, error = attempt(run, value)
            tally.inputs += 1
            tally.by_target[entry.name] += 1
            ends[word] = None
            if error is not None:
                short = shrink(run, value, error)
                tally.findings.append(Finding(entry.name, seed, error, repr(short[:2_000])))
                break
        tally.ends[entry.name] += len(ends)
    return tally
