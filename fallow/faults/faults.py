"""`fallow faults`: the real services in simulated worlds in which everything that can go wrong does."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter, time_ns
from typing import Annotated

import typer

from fallow.cli.errors.failures import Exit, end_with, refuse, say
from fallow.cli.output.output import AsJson, print_json, print_line
from fallow.faults.fault_report import Report, body_of, print_report
from fallow.faults.fault_worlds import Story, Told, shrunk, tell_all
from fallow.faults.mutants import SEEDS_MAX, MutantError, chosen, hunt_all, line_of, load_mutants, summary
from fallow.simulator.trouble.faults import Fault

SEEDS = 100
FRESH_SEEDS = 1_000_000_000
DAY_NS = 86_400 * 10**9
MUTANTS_A_DAY = 17
"""So many further on the hunt of the next day begins, if it has an end."""

app = typer.Typer(help="Run the real services in simulated worlds full of faults, and judge what became of them.")


@app.command()
def faults(  # noqa: PLR0913, PLR0917 - its options
    first_seed: Annotated[int | None, typer.Option(help="The first seed; a fresh one if none.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many worlds; 100 if none, 2,000 for mutants.")] = None,
    faults: Annotated[str, typer.Option(help="Kinds of faults, with commas between; all if none.")] = "",
    jobs_in_parallel: Annotated[int | None, typer.Option(min=1, help="Worlds at a time; one a core if none.")] = None,
    shrink: Annotated[bool, typer.Option("--shrink", help="Look for the shortest story that fails.")] = False,
    keep: Annotated[str | None, typer.Option(help="Only these happen: numbers of faults / numbers of wishes.")] = None,
    go_on: Annotated[
        bool, typer.Option("--go-on", help="Run all worlds, and tell of each that breaks a promise.")
    ] = False,
    mutants: Annotated[bool, typer.Option("--mutants", help="Take out one defence at a time: is it noticed?")] = False,
    mutant: Annotated[str, typer.Option(help="With --mutants: these alone, with commas between.")] = "",
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=10_000, help="Begin no further world then. With --mutants: each day another one comes first."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run one world for each seed, up to the first that breaks a promise (or, with --go-on, all of them)."""
    if mutant and not mutants:
        refuse("--mutant", mutant, "goes with --mutants")
    if mutants:
        hunt = Hunting(mutant, first_seed or 0, seeds or SEEDS_MAX, jobs_in_parallel, minutes)
        _hunt_mutants(hunt, as_json=as_json)
        return
    first = time_ns() % FRESH_SEEDS if first_seed is None else first_seed
    seeds = seeds or SEEDS
    kinds, (kept_faults, kept_items) = kinds_of(faults), kept_of(keep)
    say(f"first seed {first}, {seeds} seeds")
    stories = [Story(seed, kinds, kept_faults, kept_items) for seed in range(first, first + seeds)]
    begun_s = perf_counter()
    told = _run(stories, jobs_in_parallel or os.cpu_count() or 1, goes_on=go_on, minutes=minutes)
    seconds = perf_counter() - begun_s
    broken = next((each for each in told if each.violation is not None), None)
    report = Report(told, shrunk(broken.story) if broken is not None and shrink else None, seconds)
    if as_json:
        print_json(body_of(report))
    else:
        print_report(report)
    if report.broken:
        raise typer.Exit(Exit.NO)


@dataclass(frozen=True, slots=True)
class Hunting:
    """Which mutants to hunt (names with commas between; none: all), in which worlds, and for how long."""

    names: str
    first_seed: int
    seeds_max: int
    jobs: int | None
    minutes: float | None


def _hunt_mutants(hunting: Hunting, *, as_json: bool) -> None:
    """Exit code 1 where a mutant was missed; without an end by time also where a hunt did not come to its end."""
    try:
        mutants = chosen(
            load_mutants(), hunting.names, 0 if hunting.minutes is None else MUTANTS_A_DAY * (time_ns() // DAY_NS)
        )
        hunts = hunt_all(
            mutants,
            lambda hunt: say(line_of(hunt)),
            first_seed=hunting.first_seed,
            seeds_max=hunting.seeds_max,
            jobs=hunting.jobs,
            seconds=None if hunting.minutes is None else 60 * hunting.minutes,
        )
    except MutantError as error:
        end_with(Exit.USAGE, str(error))
    found = summary(hunts)
    if as_json:
        print_json(found)
    else:
        print_line(f"{found['mutants_caught']} of {found['mutants_total']} mutants were caught")
        for name in found["no_time_for"]:
            print_line(f"no time for {name}")
    is_whole = hunting.minutes is None
    if found["missed"] or (is_whole and found["no_time_for"]):
        raise typer.Exit(Exit.NO)


def kinds_of(names: str) -> tuple[Fault, ...]:
    """The kinds of these names, in their own order; all where none is named."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = [fault.value for fault in Fault]
    for name in wanted:
        if name not in known:
            refuse("--faults", name, f"must be one of {', '.join(known)}")
    return tuple(fault for fault in Fault if not wanted or fault.value in wanted)


def kept_of(text: str | None) -> tuple[frozenset[int] | None, frozenset[int] | None]:
    """The faults and the wishes of `1,5/2,4`; `all` is all of them."""
    if text is None:
        return None, None
    parts = text.split("/")
    if len(parts) != 2 or not all(_is_list(part) for part in parts):  # noqa: PLR2004 - faults and wishes
        refuse("--keep", text, "must be two lists of numbers, like 1,5/2,4 (all: all of them)")
    faults, wishes = map(_numbers, parts)
    return faults, wishes


DIGITS_MAX = 9


def _is_list(text: str) -> bool:
    return text == "all" or all(
        number.isascii() and number.isdecimal() and len(number) <= DIGITS_MAX for number in text.split(",") if number
    )


def _numbers(text: str) -> frozenset[int] | None:
    return None if text == "all" else frozenset(int(number) for number in text.split(",") if number)


def _run(stories: Sequence[Story], processes: int, *, goes_on: bool, minutes: float | None) -> list[Told]:
    """Every world, or those up to the first that fails, or those for which there is time: one at least."""
    found: list[Told] = []
    shows, begun_s = sys.stderr.isatty(), perf_counter()
    for told in tell_all(stories, processes):
        found.append(told)
        if shows and (len(found) % 20 == 0 or len(found) == len(stories)):
            rate = len(found) / (perf_counter() - begun_s)
            sys.stderr.write(f"\r{len(found)} of {len(stories)} seeds, {rate:.0f} a second ")
        if told.violation is not None and not goes_on:
            break
        if minutes is not None and perf_counter() - begun_s >= 60 * minutes:
            break
    if shows:
        sys.stderr.write("\n")
    return found
