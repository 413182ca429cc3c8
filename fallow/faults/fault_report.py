"""What `fallow faults` prints of its worlds: for people, and as one object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fallow.cli.output.output import print_line
from fallow.faults.fault_worlds import Ending, Story, Told
from fallow.simulator.history.reached import EFFECTS, REASONS
from fallow.simulator.trouble.faults import Fault

TOLD_MAX = 40


@dataclass(frozen=True, slots=True)
class Report:
    """All worlds of one run, the first that failed with its shortest story (None: not looked for), and the time."""

    told: Sequence[Told]
    ending: Ending | None
    seconds: float

    @property
    def broken(self) -> list[Told]:
        """The worlds that broke a promise."""
        return [each for each in self.told if each.violation is not None]


def body_of(report: Report) -> dict[str, Any]:
    """One object with all of it."""
    told, broken = report.told, report.broken
    return {
        "seeds": len(told),
        "steps": sum(each.steps for each in told),
        "faults_injected": injected(told),
        "effects_reached": _reached(told, EFFECTS),
        "reasons_reached": _reached(told, REASONS),
        "violations": sum(each.violations for each in broken),
        "first_violation": _violation(broken[0], report.ending) if broken else None,
        "broken_seeds": [each.story.seed for each in broken],
        "seconds": round(report.seconds, 2),
    }


def injected(told: Sequence[Told]) -> dict[str, int]:
    """How often each kind of fault happened."""
    count: Counter[str] = Counter()
    for each in told:
        count.update(each.injected)
    return {fault.value: count[fault.value] for fault in Fault}


def _reached(told: Sequence[Told], names: Sequence[str]) -> dict[str, int]:
    count: Counter[str] = Counter()
    for each in told:
        count.update(each.reached)
    return {name: count[name] for name in names}


def _violation(failed: Told, ending: Ending | None) -> dict[str, Any]:
    told = failed if ending is None else ending.told
    assert told.violation is not None
    invariant, text = told.violation
    found: dict[str, Any] = {
        "seed": told.story.seed,
        "invariant": invariant,
        "text": text,
        "command": command_of(told.story),
    }
    if ending is not None:
        found["faults"] = [f"{fault.at_ms} ms: {fault.kind}: {fault.what}" for fault in ending.faults]
        found["wishes"] = [
            f"{item.at_ms} ms: {item.client}: {type(item.event).__name__} {item.event.key()}" for item in ending.items
        ]
    return found


def command_of(story: Story) -> str:
    """The command that replays this world."""
    words = [f"fallow faults --first-seed {story.seed} --seeds 1"]
    if story.kinds != tuple(Fault):
        words.append(f"--faults {','.join(kind.value for kind in story.kinds)}")
    kept = (story.keep_faults, story.keep_items)
    if kept != (None, None):
        words.append("--keep " + "/".join("all" if some is None else ",".join(map(str, sorted(some))) for some in kept))
    return " ".join(words)


def print_report(report: Report) -> None:
    """All of it as lines."""
    told, broken, seconds = report.told, report.broken, report.seconds
    steps = sum(each.steps for each in told)
    print_line(f"{len(told)} seeds, {steps} steps, {seconds:.1f} s ({len(told) / seconds:.0f} seeds a second)")
    _print_counts("faults", injected(told))
    _print_counts("effects", _reached(told, EFFECTS))
    _print_counts("reasons", _reached(told, REASONS))
    if not broken:
        print_line("every promise was kept")
    for each in broken:
        found = _violation(each, report.ending if each is broken[0] else None)
        print_line(f"seed {found['seed']} breaks {found['invariant']}: {found['text']}")
        for name in ("faults", "wishes"):
            for line in found.get(name, ())[:TOLD_MAX]:
                print_line(f"  {name}: {line}")
        print_line(f"again: {found['command']}")


def _print_counts(what: str, counts: dict[str, int]) -> None:
    never = [name for name, count in counts.items() if not count]
    print_line(f"{what}: " + ", ".join(f"{name} {count}" for name, count in counts.items() if count))
    if never:
        print_line(f"{what} never reached: " + ", ".join(never))
