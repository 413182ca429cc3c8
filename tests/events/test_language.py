"""The language as a whole: every class is told of, has a golden record that stays readable, and a versioned type."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import fallow.shared.events
from fallow.shared.events import TYPES, Decision, Event, Undecodable, decode, encode
from fallow.shared.events.fields.value import model_of
from tests.events.write_golden import GOLDEN, missing_effects, path_of
from tests.strategies import EFFECTS

NAMES = sorted([cls.__name__ for cls in TYPES.values()] + [effect.__name__ for effect in EFFECTS])
TOPICS = ["submissions", "operations", "jobs", "nodes", "demand", "queue", "proposals", "decisions", "snapshots"]


def read_again(path_stem: str) -> Event:
    event = decode(path_stem, (GOLDEN / f"{path_stem}.json").read_bytes())
    assert not isinstance(event, Undecodable), event
    return event


def written_out(event: Event) -> Any:
    """The event with the defaults that its bytes leave out."""
    return model_of(type(event)).model_validate_json(encode(event)).model_dump(mode="json")


def keeps(new: Any, old: Any) -> bool:
    """Whether everything that `old` says is still said by `new`, which may say more."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and keeps(new[key], old[key]) for key in old)
    if isinstance(old, list):
        return isinstance(new, list) and len(new) == len(old) and all(map(keeps, new, old))
    return bool(new == old)


@pytest.mark.parametrize("name", NAMES)
def test_the_package_tells_the_life_of_every_class(name: str) -> None:
    assert f"`{name}`" in (fallow.shared.events.__doc__ or "")


@pytest.mark.parametrize("name", NAMES)
def test_every_class_is_handed_out_by_the_package(name: str) -> None:
    assert hasattr(fallow.shared.events, name)


@pytest.mark.parametrize("cls", TYPES.values(), ids=lambda cls: cls.__name__)
def test_every_type_has_a_golden_record(cls: type[Event]) -> None:
    assert path_of(cls).exists(), "write it with: python -m tests.events.write_golden"


@pytest.mark.parametrize("type_", sorted(path.stem for path in GOLDEN.glob("*.json")))
def test_a_golden_record_is_read_for_ever_and_loses_nothing(type_: str) -> None:
    assert keeps(written_out(read_again(type_)), json.loads((GOLDEN / f"{type_}.json").read_bytes()))


def test_the_golden_decision_has_every_effect_as_it_was_and_as_it_is() -> None:
    decision = read_again(Decision.type)
    assert isinstance(decision, Decision)
    assert {type(effect) for effect in decision.effects} == set(EFFECTS)
    assert missing_effects() == [], "write them with: python -m tests.events.write_golden"


@pytest.mark.parametrize("cls", TYPES.values(), ids=lambda cls: cls.__name__)
def test_every_record_has_a_versioned_type_a_known_topic_and_a_docstring(cls: type[Event]) -> None:
    assert re.fullmatch(r"fallow(\.[a-z-]+)+\.v[0-9]+", cls.type)
    assert cls.topic in TOPICS
    assert cls.__doc__


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.__name__)
def test_an_effects_kind_is_the_name_of_its_class(effect: type[Any]) -> None:
    assert effect.kind == effect.__struct_config__.tag == effect.__name__
    assert effect.__doc__


def test_one_type_belongs_to_one_class() -> None:
    with pytest.raises(TypeError, match="is the type of CancelJob already"):

        class CancelAgain(Event, type="fallow.job.cancel.v1", topic="submissions"):
            pass


def test_submissions_and_operations_are_commands_and_nothing_else_is() -> None:
    commands = {cls.topic for cls in TYPES.values() if cls.is_command}
    facts = {cls.topic for cls in TYPES.values() if not cls.is_command}
    assert commands == {"submissions", "operations"}
    assert not commands & facts
