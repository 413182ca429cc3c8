"""access.yaml: what it gives to which user, and what is told of rules that differ."""

from __future__ import annotations

import pytest

from fallow.shared.log.admin.access_admin import rules_of
from fallow.shared.log.admin.access_rules import (
    AccessFile,
    AccessFileError,
    Operation,
    Pattern,
    Resource,
    Rights,
    Rule,
    access_differences,
    expected_rules,
    parse_access,
)
from fallow.shared.log.admin.topics import parse_topics
from fallow.shared.log.opening import ACCESS_FILE, TOPICS_FILE

TOPIC, GROUP, CLUSTER = 2, 3, 4
LITERAL, PREFIXED = 3, 4
ALL, READ, WRITE, ALTER, DESCRIBE = 2, 3, 4, 7, 8
DENY, ALLOW = 2, 3
"""The numbers of Kafka's protocol."""

TOPICS = parse_topics(TOPICS_FILE.read_text()).topics
SHIPPED = parse_access(ACCESS_FILE.read_text(), TOPICS)


def writers(topic: str) -> set[str]:
    rules = expected_rules(SHIPPED, "fallow", TOPICS, ["vision"])
    return {rule.principal for rule in rules if rule.name == topic and rule.operation == Operation.WRITE}


def test_only_placement_writes_decisions_and_only_admission_jobs() -> None:
    assert writers("fallow.decisions") == {"placement"}
    assert writers("fallow.jobs") == {"admission"}
    assert writers("fallow.snapshots") == {"queueing"}
    assert writers("fallow.nodes") == {"executor"}


def test_a_tenant_may_write_its_own_topic_and_nothing_else() -> None:
    rules = expected_rules(SHIPPED, "fallow", TOPICS, ["vision"])
    own = Rule("tenant-vision", Operation.WRITE, Resource.TOPIC, "fallow.submissions.vision")
    assert {rule for rule in rules if rule.principal == "tenant-vision"} == {own}


def test_a_tenants_topic_goes_with_submissions() -> None:
    rules = expected_rules(SHIPPED, "fallow", TOPICS, ["vision"])
    assert Rule("admission", Operation.READ, Resource.TOPIC, "fallow.submissions.vision") in rules


def test_no_rule_reaches_beyond_the_topics_and_groups_of_this_installation() -> None:
    rules = expected_rules(SHIPPED, "fallow", TOPICS, ["vision"])
    assert {rule.pattern for rule in rules} == {Pattern.LITERAL}


def test_an_installation_whose_namespace_begins_alike_keeps_its_rights() -> None:
    here, there = (expected_rules(SHIPPED, namespace, TOPICS, ["vision"]) for namespace in ("fallow", "fallow.test"))
    assert access_differences(here, here | there).lines() == []
    assert access_differences(there, here | there).lines() == []


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ((TOPIC, "*", LITERAL, [("User:eve", "*", WRITE, ALLOW)]), "eve may write *"),
        ((TOPIC, "fallow", PREFIXED, [("User:eve", "*", WRITE, ALLOW)]), "eve may write fallow*"),
        ((TOPIC, "f", PREFIXED, [("User:queueing", "*", WRITE, ALLOW)]), "queueing may write f*"),
        ((TOPIC, "fallow.jobs", LITERAL, [("User:eve", "::1", WRITE, ALLOW)]), "eve may write fallow.jobs from ::1"),
        ((TOPIC, "fallow.jobs", LITERAL, [("User:*", "*", ALL, ALLOW)]), "* may all fallow.jobs"),
        ((TOPIC, "fallow.*", PREFIXED, [("User:eve", "*", WRITE, ALLOW)]), None),
        ((GROUP, "fallow.placement", LITERAL, [("User:eve", "*", READ, ALLOW)]), "eve may read group fallow.placement"),
        (
            (CLUSTER, "kafka-cluster", LITERAL, [("User:executor", "*", ALTER, ALLOW)]),
            "executor may alter cluster kafka-cluster",
        ),
        ((CLUSTER, "kafka", LITERAL, [("User:eve", "*", DESCRIBE, ALLOW)]), None),
        ((TOPIC, "other.decisions", LITERAL, [("User:eve", "*", WRITE, ALLOW)]), None),
    ],
)
def test_whatever_lets_somebody_at_these_topics_is_told_and_left_to_a_person(answer: object, line: str | None) -> None:
    declared = expected_rules(SHIPPED, "fallow", TOPICS, ["vision"])
    found = access_differences(declared, declared | set(rules_of([answer])))
    assert found.lines() == ([] if line is None else [f"beside the file: {line}"])


@pytest.mark.parametrize(
    ("acl", "line"),
    [
        (("User:queueing", "10.0.0.9", ALL, ALLOW), "queueing may all fallow.decisions from 10.0.0.9"),
        (("User:placement", "*", WRITE, DENY), "placement may not write fallow.decisions"),
        (("User:tenant-gone", "*", WRITE, ALLOW), "tenant-gone may write fallow.decisions"),
    ],
)
def test_rules_of_our_own_principals_by_the_names_of_our_topics_are_removed(acl: object, line: str) -> None:
    declared = expected_rules(SHIPPED, "fallow", TOPICS, ["vision"])
    found = access_differences(declared, declared | set(rules_of([(TOPIC, "fallow.decisions", LITERAL, [acl])])))
    assert found.lines() == [f"not declared: {line}"]


def test_the_rights_on_a_tenants_topic_that_is_gone_are_too_many_and_those_on_one_that_is_there_stay() -> None:
    before, now = (expected_rules(SHIPPED, "fallow", TOPICS, tenants) for tenants in (["vision", "speech"], ["vision"]))
    there = {rule.name for rule in before if rule.resource is Resource.TOPIC}
    gone = "fallow.submissions.speech"
    assert access_differences(now, before, there).lines() == []
    found = access_differences(now, before, there - {gone})
    assert set(found.too_many) == {rule for rule in before if rule.name == gone} != set()
    assert f"not declared: tenant-speech may write {gone}" in found.lines()
    assert access_differences(before, before, there - {gone}).lines() == []
    assert access_differences(now, before, there - {gone, "fallow.jobs"}).lines() == [], "Kafka may hide both"


def test_a_namespace_that_is_called_as_the_topic_of_submissions_keeps_its_rights() -> None:
    here, there = (expected_rules(SHIPPED, each, TOPICS, ["vision"]) for each in ("fallow", "fallow.submissions"))
    of_here, of_there = ({rule.name for rule in each if rule.resource is Resource.TOPIC} for each in (here, there))
    assert access_differences(here, here | there, of_here).lines() == []
    assert access_differences(there, here | there, of_there).lines() == []


def test_every_topic_that_somebody_must_write_has_a_writer() -> None:
    assert {name for name in TOPICS if not writers(f"fallow.{name}")} == {"demand", "executor-slots"}


def test_an_unknown_operation_is_told_by_its_number() -> None:
    rule = Rule("metrics", 99, Resource.TOPIC, "fallow.decisions")
    assert str(rule) == "metrics may do operation 99 on fallow.decisions"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("principals: {a: {reads: [jobs]}}", "access file: principals.a.reads: unknown field"),
        ("principals: {a: {write: all}}", "access file: principals.a.write = 'all': must be a list"),
        ("principals: {a: {read: [job]}}", "access file: principals.a.read = 'job': is not declared in topics.yaml: "),
        ("principals: {a: {}, a: {}}", "access file: "),
        ("principals: {'*': {write: [jobs]}}", "access file: principals = '*': must match"),
        ("principals: {'User:eve': {}}", "access file: principals = 'User:eve': must match"),
        ("principals: {tenant-a: {}}", "access file: principals.tenant-a: names with tenant- are those of tenants"),
        ("principals: {a: {groups: ['']}}", "access file: principals.a.groups[0] = '': must match"),
        ("[]", "access file: "),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_one_line(text: str, line: str) -> None:
    with pytest.raises(AccessFileError) as refused:
        parse_access(text, TOPICS)
    (said,) = str(refused.value).splitlines()
    assert said.startswith(line)


def test_whoever_may_do_something_with_submissions_may_do_it_with_each_tenants() -> None:
    all_of_it = Rights(read=["submissions"], write=["submissions"], delete=["submissions"])
    rules = expected_rules(AccessFile(principals={"x": all_of_it}), "fallow", TOPICS, ["vision"])
    own = {rule.operation for rule in rules if rule.name == "fallow.submissions.vision"}
    assert own >= {Operation.READ, Operation.WRITE, Operation.DELETE}


def test_what_keeps_a_stranger_from_the_cluster_gives_nobody_a_way_into_a_cell() -> None:
    declared = expected_rules(SHIPPED, "fallow", TOPICS, ["vision"])
    denied = rules_of([(CLUSTER, "kafka-cluster", LITERAL, [("User:eve", "*", ALTER, DENY)])])
    assert access_differences(declared, declared | set(denied)).lines() == []


def test_whoever_reads_in_a_group_may_read_in_it() -> None:
    rules = expected_rules(AccessFile(principals={"x": Rights(groups=["g"])}), "fallow", TOPICS, [])
    assert {rule for rule in rules if rule.resource is Resource.GROUP} == {
        Rule("x", Operation.READ, Resource.GROUP, "fallow.g")
    }


def test_who_may_write_a_topic_may_delete_of_it_only_where_the_file_says_so() -> None:
    rights = Rights(write=["jobs", "nodes"], delete=["nodes", "snapshots"])
    rules = expected_rules(AccessFile(principals={"loader": rights}), "fallow", TOPICS, [])
    may = {
        what: {rule.name for rule in rules if rule.operation == what} for what in (Operation.WRITE, Operation.DELETE)
    }
    assert may == {
        Operation.WRITE: {"fallow.jobs", "fallow.nodes"},
        Operation.DELETE: {"fallow.nodes", "fallow.snapshots"},
    }
