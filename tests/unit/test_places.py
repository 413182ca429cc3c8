"""An effect, a reason to wait, a policy and a field of a job stand wherever they have to. A copy of the code has one of
them more, and nothing else: each place that lacks it is told with its path.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fallow.faults.mutants import TESTED, copy_code
from tests.unit.places import missing

HIGHEST = '''"""The highest node that fits each worker."""

from fallow.services.placement.fit.filling import places_of_gang
from fallow.services.placement.fit.free_capacity import FreeCapacity
from fallow.services.placement.policy.placement_policy import PlacementPolicy, first_of


def highest(by_free, least):
    fit = 0
    for free, mask in by_free.items():
        fit |= mask if free >= least else 0
    while fit:
        bit = 1 << fit.bit_length() - 1
        fit ^= bit
        yield bit


def place_gang(state, pool, spec):
    return places_of_gang(FreeCapacity.of(state, pool, spec), spec, highest)


POLICY = PlacementPolicy("highest", "Only here.", place_gang, first_of(place_gang))
'''
DECIDES = """
from tests.placement.worlds.world import admitted, cell_with, joined, set_policy, spec_of
world = cell_with(joined("n1"), joined("n2"), joined("n3"))
world.tell(set_policy(placement="highest"))
world.tell(admitted(spec_of("job", 2)))
print(*world.nodes_of("job"))
"""


def test_nothing_is_missing_anywhere() -> None:
    assert missing() == []


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copy_code(tmp_path, (*TESTED, "CONTRIBUTING.md"))


def printed(copy: Path, *command: str) -> list[str]:
    """What a process prints that runs on the code of the copy."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def change(copy: Path, file: str, text: str, instead: str) -> None:
    """Write the file anew: the copy shares it with the code itself."""
    path = copy / file
    before = path.read_text(encoding="utf-8")
    assert before.count(text) == 1
    path.unlink()
    path.write_text(before.replace(text, instead), encoding="utf-8")


def test_one_file_makes_a_policy_that_decides_and_the_lines_that_lack_it_are_told(copy: Path) -> None:
    (copy / "services" / "placement" / "policy" / "highest.py").write_text(HIGHEST, encoding="utf-8")
    assert printed(copy, "-c", DECIDES) == ["n3"]
    config, cell_file, page = printed(copy, "-m", "tests.unit.places")
    assert config.startswith("shared/cluster/model/config.py lacks the line: PLACEMENTS = (")
    assert config.endswith('"e-spread", "highest")')
    assert cell_file.startswith("deploy/cell.yaml lacks the line: placement: ")
    assert cell_file.endswith("lifetime, highest or first-fit (e-spread)")
    row = "| `highest` | (what it does) | Only here. | (ties) | (cost) |"
    assert page == f"'Which policy' (docs/placement.md) lacks the row: {row}"


def test_of_a_reason_to_wait_that_only_has_its_code_each_place_that_lacks_it_is_told(copy: Path) -> None:
    first = '    NO_FREE_GPUS = "no_free_gpus"\n'
    change(copy, "shared/events/reasons.py", first, f'{first}    MOON_IS_FULL = "moon_is_full"\n')
    places = [
        "PRECEDENCE (services/placement/search/reason_precedence.py)",
        "DEFERRED (fallow/cli/log/why.py)",
        "CELLS (tests/reasons/cells.py)",
        "NUMBERS (tests/reasons/test_waits.py)",
        "'PendingReason' (docs/reasons.md)",
        "'Which reason comes first' (docs/reasons.md)",
    ]
    schemas = "deploy/asyncapi.yaml is stale: python -m fallow.shared.events.asyncapi writes it"
    assert printed(copy, "-m", "tests.unit.places") == [*(f"{place} lacks moon_is_full" for place in places), schemas]


def test_of_an_effect_that_only_has_its_class_each_place_that_lacks_it_is_told(copy: Path) -> None:
    language = "AnyEffect = (\n"
    change(copy, "shared/events/effects.py", language, f'class MoonRose(Effect):\n    """It rose."""\n\n\n{language}')
    places = [
        "AnyEffect (shared/events/effects.py)",
        "APPLY (shared/cluster/fold/apply.py)",
        "TOUCH (services/projector/app/apply.py)",
        "SENTENCES (fallow/cli/log/sentences.py)",
        "TABLE (tests/cli/output/test_sentences.py)",
    ]
    assert printed(copy, "-m", "tests.unit.places") == [f"{place} lacks MoonRose" for place in places]


def test_of_a_field_of_a_job_that_only_has_its_line_each_place_that_lacks_it_is_told(copy: Path) -> None:
    behind = "    def __post_init__(self) -> None:\n        # What equals a default"
    change(copy, "shared/events/fields/values.py", behind, f"    under_full_moon: bool = False\n\n{behind}")
    assert printed(copy, "-m", "tests.unit.places") == [
        "VARIANTS (tests/placement/lines/test_scheduling_key.py) lacks under_full_moon",
        "JobSpec (shared/events/fields/values.py) lacks the sentence below under_full_moon",
        "docs/reference/job-fields.md is stale: python -m fallow.reference writes it",
        "deploy/asyncapi.yaml is stale: python -m fallow.shared.events.asyncapi writes it",
    ]
