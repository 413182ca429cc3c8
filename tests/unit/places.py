"""Where an effect, a reason to wait, a policy and a field of a job have to stand, and which of these places lack one.

`python -m tests.unit.places` prints what is missing, a place a line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from sys import stdout
from typing import get_args

from fallow.cli.log.sentences import SENTENCES
from fallow.cli.log.why import DEFERRED
from fallow.reference import pages
from fallow.reference.fields import rows_of
from fallow.services.placement.policy.policies import POLICIES
from fallow.services.placement.search.reason_precedence import PRECEDENCE
from fallow.services.projector.app.apply import TOUCH
from fallow.shared.cluster.fold.apply import APPLY
from fallow.shared.cluster.model.config import PLACEMENTS
from fallow.shared.events import asyncapi, effects
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.reasons import PendingReason
from tests.cli.output.test_sentences import TABLE
from tests.placement.lines.test_scheduling_key import VARIANTS
from tests.reasons.cells import CELLS
from tests.reasons.test_waits import NUMBERS

TOP = Path(__file__).parents[2]
CELL_FILE, PLACEMENT_PAGE, REASONS_PAGE = "deploy/cell.yaml", "docs/placement.md", "docs/reasons.md"

Lacking = Iterator[str]


def _not_in(place: str, wanted: Collection[str], there: Collection[str]) -> Lacking:
    """A line for each that the place lacks, and for each that stands there and is none."""
    yield from (f"{place} lacks {name}" for name in wanted if name not in there)
    yield from (f"{place} names {name}, which there is not" for name in there if name not in wanted)


def _part(page: str, heading: str) -> str:
    text = (TOP / page).read_text(encoding="utf-8")
    return text.partition(f"\n## {heading}")[2].partition("\n## ")[0]


def of_effects() -> Lacking:
    """Whatever goes by all effects; what goes by some of them is listed in CONTRIBUTING.md."""
    kinds = [kind for kind in vars(effects).values() if isinstance(kind, type) and issubclass(kind, effects.Effect)]
    wanted = [kind.__name__ for kind in kinds if kind.__module__ == effects.__name__ and not kind.__subclasses__()]
    tables: dict[str, Collection[type]] = {
        "AnyEffect (shared/events/effects.py)": get_args(effects.AnyEffect),
        "APPLY (shared/cluster/fold/apply.py)": APPLY,
        "TOUCH (services/projector/app/apply.py)": TOUCH,
        "SENTENCES (fallow/cli/log/sentences.py)": SENTENCES,
        "TABLE (tests/cli/output/test_sentences.py)": {type(effect) for effect, _ in TABLE},
    }
    for place, there in tables.items():
        yield from _not_in(place, wanted, [kind.__name__ for kind in there])


def of_reasons() -> Lacking:
    """Whatever goes by all reasons to wait."""
    wanted = [code.value for code in PendingReason]
    tables: dict[str, Collection[PendingReason]] = {
        "PRECEDENCE (services/placement/search/reason_precedence.py)": PRECEDENCE,
        "DEFERRED (fallow/cli/log/why.py)": DEFERRED,
        "CELLS (tests/reasons/cells.py)": CELLS,
        "NUMBERS (tests/reasons/test_waits.py)": NUMBERS,
    }
    for place, there in tables.items():
        yield from _not_in(place, wanted, [code.value for code in there])
    rows = re.findall(r"^\| `(\w+)` \|", _part(REASONS_PAGE, "PendingReason: "), re.MULTILINE)
    yield from _not_in(f"'PendingReason' ({REASONS_PAGE})", wanted, rows)
    ordered = re.findall(r"^\| \w+ \| (`.*) \|$", _part(REASONS_PAGE, "Which reason comes first"), re.MULTILINE)
    named = [code for codes in ordered for code in re.findall(r"`(\w+)`", codes)]
    yield from _not_in(f"'Which reason comes first' ({REASONS_PAGE})", wanted, named)


def of_policies() -> Lacking:
    """What a person chooses a placement policy by, each as the line to write there."""
    known = [name for name in PLACEMENTS if name in POLICIES]
    if set(PLACEMENTS) != set(POLICIES):
        names = ", ".join(f'"{name}"' for name in (*known, *sorted(POLICIES.keys() - known)))
        yield f"shared/cluster/model/config.py lacks the line: PLACEMENTS = ({names})"
    text = (TOP / CELL_FILE).read_text(encoding="utf-8")
    (line,) = re.findall(r"^ +(placement: .*# which nodes a gang gets: .*)$", text, re.MULTILINE)
    before, _, comment = line.partition(" which nodes a gang gets: ")
    named = re.split(r", | or ", comment.removesuffix(f" ({CellPolicy().placement})"))
    told = [name for name in named if name in POLICIES]
    choice = told[:-1] + sorted(POLICIES.keys() - told) + told[-1:]
    right = f"{before} which nodes a gang gets: {', '.join(choice[:-1])} or {choice[-1]} ({CellPolicy().placement})"
    if line != right:
        yield f"{CELL_FILE} lacks the line: {right}"
    part = _part(PLACEMENT_PAGE, "Which policy")
    rows = dict(re.findall(r"^\| `([^`]+)` \| [^|]+ \| ([^|]+) \| [^|]+ \| [^|]+ \|$", part, re.MULTILINE))
    for name, policy in POLICIES.items():
        if rows.pop(name, None) != policy.what_for:
            row = f"| `{name}` | (what it does) | {policy.what_for} | (ties) | (cost) |"
            yield f"'Which policy' ({PLACEMENT_PAGE}) lacks the row: {row}"
    if f"**`{CellPolicy().placement}` is the default**, since" not in part:
        yield f"'Which policy' ({PLACEMENT_PAGE}) lacks why {CellPolicy().placement} is the default"
    yield from (f"'Which policy' ({PLACEMENT_PAGE}) names {name}, which there is not" for name in rows)


def of_job_fields() -> Lacking:
    """The test of the scheduling key, the sentence that tells what a field means, and the page that shows it."""
    yield from _not_in("VARIANTS (tests/placement/lines/test_scheduling_key.py)", JobSpec.__struct_fields__, VARIANTS)
    for row in rows_of(JobSpec):
        if not row.meaning:
            yield f"JobSpec (shared/events/fields/values.py) lacks the sentence below {row.field}"
    for name, text in pages.texts().items():
        if (TOP / "docs" / "reference" / name).read_text(encoding="utf-8") != text:
            yield f"docs/reference/{name} is stale: python -m fallow.reference writes it"


def of_schemas() -> Lacking:
    """The schemas list every effect, reason and field."""
    if (TOP / "deploy" / "asyncapi.yaml").read_text(encoding="utf-8") != asyncapi.text():
        yield "deploy/asyncapi.yaml is stale: python -m fallow.shared.events.asyncapi writes it"


def missing() -> list[str]:
    """All that is missing of all these."""
    return [*of_effects(), *of_reasons(), *of_policies(), *of_job_fields(), *of_schemas()]


if __name__ == "__main__":
    stdout.writelines(f"{line}\n" for line in missing())
