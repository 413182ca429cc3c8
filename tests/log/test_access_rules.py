"""access.yaml: what it gives to whom, and what is told of rules that differ."""

from __future__ import annotations

import pytest

from shared.log.access_rules import (
    AccessFileError,
    Operation,
    Pattern,
    Resource,
    Rule,
    access_differences,
    expected_rules,
    parse_access,
)
from shared.log.opening import ACCESS_FILE, TOPICS_FILE
from shared.log.topics import parse_topics

TOPICS = parse_topics(TOPICS_FILE.read_text()).topics
SHIPPED = parse_access(ACCESS_FILE.read_text(), TOPICS)


def writers(topic: str) -> set[str]:
    rules = expected_rules(SHIPPED, "fallow", ["vision"])
    return {rule.principal for rule in rules if rule.name == topic and rule.operation == Operation.WRITE}


def test_only_placement_writes_decisions_and_only_admission_jobs() -> None:
    assert writers("fallow.decisions") == {"placement"}
    assert writers("fallow.jobs") == {"admission"}
    assert writers("fallow.snapshots") == {"snapshots"}
    assert writers("fallow.nodes") == {"executor"}


def test_a_tenant_may_write_its_own_topic_and_nothing_else() -> None:
    rules = expected_rules(SHIPPED, "fallow", ["vision"])
    own = Rule("tenant-vision", Operation.WRITE, Resource.TOPIC, "fallow.submissions.vision")
    assert {rule for rule in rules if rule.principal == "tenant-vision"} == {own}


def test_a_tenants_topic_goes_with_submissions() -> None:
    rules = expected_rules(SHIPPED, "fallow", ["vision"])
    assert Rule("admission", Operation.READ, Resource.TOPIC, "fallow.submissions.vision") in rules


def test_nobody_may_write_all_topics() -> None:
    rules = expected_rules(SHIPPED, "fallow", ["vision"])
    broad = {rule.operation for rule in rules if rule.pattern is Pattern.PREFIXED}
    assert broad == {Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}


def test_every_topic_that_somebody_must_write_has_a_writer() -> None:
    assert {name for name in TOPICS if not writers(f"fallow.{name}")} == {"demand", "proposals", "executor-slots"}


def test_rules_of_another_namespace_are_none_of_ours() -> None:
    other = Rule("etl", Operation.READ, Resource.TOPIC, "fallow2.decisions")
    assert access_differences(frozenset(), [other], "fallow").lines() == []


def test_an_unknown_operation_is_told_by_its_number() -> None:
    rule = Rule("metrics", 7, Resource.TOPIC, "fallow.decisions")
    assert str(rule) == "metrics may do operation 7 on fallow.decisions"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("principals: {a: {reads: [jobs]}}", "principals.a.reads: Extra inputs are not permitted"),
        ("principals: {a: {write: all}}", "principals.a.write: Input should be a valid list"),
        ("principals: {a: {read: [job]}}", "principals.a.read = 'job': is not declared in topics.yaml: "),
        ("principals: {a: {}, a: {}}", "access file: "),
        ("[]", "access file: "),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_one_line(text: str, line: str) -> None:
    with pytest.raises(AccessFileError) as refused:
        parse_access(text, TOPICS)
    (said,) = str(refused.value).splitlines()
    assert said.startswith(line)
