"""A record that no model is asked about is set aside in the words of this project, too."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fallow.shared.events import Undecodable, decode, encode
from fallow.shared.events.codec.encoding import TOLD_BYTES_MAX
from fallow.shared.events.fields.value import plain
from fallow.shared.events.fields.values import RunStatus
from fallow.shared.events.nodes import RUN_WORDS_MAX, RunsReported, RunStatusUpdate
from fallow.shared.events.reasons import DeadLetterReason

WORD = RunStatusUpdate(node="n1", boot="b", seq=1, job=f"ada/train-{'x' * 90}", attempt=1, status=RunStatus.RUNNING)
FULL = plain(RunsReported(cell="a", words=(WORD,) * RUN_WORDS_MAX))
ONE = FULL["words"][0]
LARGEST = 2**53 - 1


def with_word(**fields: Any) -> dict[str, Any]:
    return {**FULL, "words": [*FULL["words"][1:], {**ONE, **fields}]}


LAST = f"words[{RUN_WORDS_MAX - 1}]"
MISTAKES: dict[str, tuple[dict[str, Any], tuple[str, str, str]]] = {
    "one word too many": (
        {**FULL, "words": [*FULL["words"], ONE]},
        ("words", f"must have at most {RUN_WORDS_MAX:,} items", ""),
    ),
    "words that are no list": ({**FULL, "words": {"a": FULL["words"]}}, ("words", "must be a list", "")),
    "a number as a name": (with_word(node=7), (f"{LAST}.node", "must be text", "")),
    "half a number": (with_word(seq=1.5), (f"{LAST}.seq", "must be a whole number", "")),
    "a number below 0": (with_word(seq=-1), (f"{LAST}.seq", "must be at least 0", "")),
    "a number too large": (with_word(attempt=2**53), (f"{LAST}.attempt", f"must be at most {LARGEST}", "")),
    "a number of many digits": (with_word(rank=10**30), (f"{LAST}.rank", "must be at most", "")),
    "a status that is none": (
        with_word(status="odd"),
        (f"{LAST}.status", "must be one of the values that there are", "odd"),
    ),
    "a part without a field": (
        {**FULL, "words": [*FULL["words"][1:], {"node": "n1"}]},
        (f"{LAST}.", "is missing", ""),
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_in_a_large_record_is_told_with_its_field_and_our_rule(what: str) -> None:
    record, (field, rule, value) = MISTAKES[what]
    text = msgspec.json.encode(record)
    assert len(text) > TOLD_BYTES_MAX
    found = decode(RunsReported.type, text)
    assert isinstance(found, Undecodable)
    assert found.reason is DeadLetterReason.INVALID
    assert (found.field.startswith(field), found.rule.startswith(rule), found.value) == (True, True, value), found
    assert "`" not in str(found)
    assert "$" not in str(found)


@pytest.mark.parametrize(
    ("cut", "rule"),
    [
        (lambda whole: whole[:-20], "is no JSON: it is cut short"),
        (lambda whole: whole.replace(b'"seq":1', b'"seq":' + b"[" * 200_000, 1), "is nested in too many levels"),
        (lambda whole: whole + b"]", "is no JSON: "),
        (lambda whole: whole.replace(b"train", b"tra\xff", 1), "is no UTF-8, and JSON is"),
    ],
    ids=["cut short", "nested", "a bracket too many", "no text"],
)
def test_a_large_record_that_is_no_json_is_told_so(cut: Any, rule: str) -> None:
    whole = encode(RunsReported(cell="a", words=(WORD,) * RUN_WORDS_MAX))
    found = decode(RunsReported.type, cut(whole))
    assert isinstance(found, Undecodable)
    assert found.reason is DeadLetterReason.UNREADABLE
    assert rule in str(found)
    assert "`" not in str(found)
