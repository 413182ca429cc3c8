"""A key that stands twice is a mistake, and never a choice of ours."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given

from fallow.services.admission.policy.duplicates import StandsTwice, _look, key_twice
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.events.reasons import RejectCode
from fallow.shared.events.submissions import CancelJob, SubmitJob, UpdateJob
from fallow.shared.events.validation.unknown_fields import read_valid
from tests.admission.commands import CANCEL, UPDATE, answer, rejected, submit
from tests.hypothesis_profile import reaches
from tests.strategies import values


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (b'{"job":{"id":"job-1","tenant":"ada","priority":1,"priority":2}}', "priority"),
        (b'{"job":{"id":"job-1","tenant":"ada","priority":1,"priority":1}}', "priority"),
        (b'{"job":{"id":"job-0","id":"job-1","tenant":"ada"}}', "id"),
        (b'{"job":{"id":"job-1","tenant":"ada"},"job":{"id":"job-1","tenant":"ada"}}', "job"),
        (b'{"job":{"id":"job-1","tenant":"ada","retry":{"budget":1,"budget":2}}}', "budget"),
        (b'{"job":{"id":"job-1","tenant":"ada","retry":{"budget":1},"retry":{"budget":1}}}', "retry"),
        (b'{"job" : {"id":"job-1",\n"tenant":"ada", "workers":1, "\\u0077orkers":2}}', "workers"),
    ],
)
def test_a_key_that_stands_twice_is_refused(text: bytes, key: str) -> None:
    found = rejected(text)
    assert (found.code, found.field, found.rule) == (RejectCode.INVALID_FIELD, key, "duplicate field")
    assert (found.job, found.tenant) == ("ada/job-1", "ada")


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (CANCEL, b'{"job":"job-1","tenant":"ada","tenant":"ada"}'),
        (UPDATE, b'{"job":"job-1","tenant":"ada","changes":{"priority":1,"priority":2}}'),
    ],
)
def test_cancels_and_updates_are_looked_at_too(type_: str, text: bytes) -> None:
    assert rejected(text, type_).rule == "duplicate field"


@pytest.mark.parametrize("env", [{"A": "http://x:1/y"}, {"A": '{"A":1,"A":2}'}, {"x:": "::", "y": '"x:":'}])
def test_colons_within_strings_are_no_keys(env: dict[str, str]) -> None:
    text = submit(run={"driver": "process", "argv": [":"], "env": env})
    assert rejected(text).code is RejectCode.UNSUPPORTED


class Counted(str):
    """A key that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_to_find_the_key_each_key_is_looked_at_a_few_times_only() -> None:
    keys = [*(Counted(f"key-{number}") for number in range(2_000)), Counted("key-1999")]
    Counted.compared = 0
    with pytest.raises(StandsTwice, match="key-1999"):
        _look([(key, 1) for key in keys])
    assert Counted.compared < 4 * len(keys)


def test_the_same_key_in_two_objects_is_fine() -> None:
    assert isinstance(answer(submit(run={"duration_ms": 1, "driver": "virtual"}, retry={"budget": 1})), JobAdmitted)


def test_a_broken_command_with_a_key_twice_is_turned_away_like_any_broken_one() -> None:
    assert rejected(b'{"job":{"id":"job-1","tenant":"ada","x":1,"x":2}}').code is RejectCode.INVALID_FIELD


@given(values(SubmitJob) | values(CancelJob) | values(UpdateJob))
def test_what_our_own_encoder_writes_has_no_key_twice(command: SubmitJob | CancelJob | UpdateJob) -> None:
    read, text = read_valid(type(command), encode(command)), encode(command)
    names = re.findall(rb'"(\w+)":', text)
    reaches("a command has one name in several of its objects", len(names) > len({*names}))
    assert key_twice(text, read) is None


@given(values(SubmitJob))
def test_any_field_of_a_job_that_is_repeated_is_found(command: SubmitJob) -> None:
    content = json.loads(encode(command))["job"]
    is_nested = any(isinstance(value, dict | list) for value in content.values())
    reaches("a field that is repeated is an object or a list", is_nested)
    for key, value in content.items():
        text = json.dumps(content)[:-1] + f", {json.dumps(key)}: {json.dumps(value)}}}"
        repeated = f'{{"job": {text}}}'.encode()
        assert key_twice(repeated, read_valid(SubmitJob, repeated)) == key
