"""Which topics are expected, and how differences are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from fallow.shared.log.admin.topics import (
    ActualTopic,
    DifferenceKind,
    TopicsFile,
    TopicsFileError,
    TopicSpec,
    differences,
    expected_topics,
    parse_topics,
)

DECLARED = Path(__file__).parents[2] / "deploy" / "kafka" / "topics.yaml"


@pytest.fixture(scope="module")
def file() -> TopicsFile:
    return parse_topics(DECLARED.read_text(encoding="utf-8"))


def as_expected(specs: tuple[TopicSpec, ...]) -> dict[str, ActualTopic]:
    return {spec.name: ActualTopic(spec.partitions, dict(spec.config)) for spec in specs}


def test_the_declared_topics_are_those_of_the_design(file: TopicsFile) -> None:
    specs = expected_topics(file, "fallow", 3, ["acme", "zoo"])
    assert {spec.name: spec.partitions for spec in specs} == {
        "fallow.submissions": 12,
        "fallow.submissions.acme": 12,
        "fallow.submissions.zoo": 12,
        "fallow.operations": 3,
        "fallow.jobs": 3,
        "fallow.nodes": 3,
        "fallow.demand": 3,
        "fallow.queue": 3,
        "fallow.proposals": 3,
        "fallow.decisions": 3,
        "fallow.snapshots": 3,
        "fallow.dead-letters": 1,
        "fallow.cells": 3,
        "fallow.executor-slots": 12,
    }


def test_only_snapshots_are_compacted(file: TopicsFile) -> None:
    specs = expected_topics(file, "fallow", 1, [])
    assert [spec.name for spec in specs if ("cleanup.policy", "compact") in spec.config] == ["fallow.snapshots"]


def test_one_broker_may_be_lost_when_there_are_three_copies(file: TopicsFile) -> None:
    assert ("min.insync.replicas", "2") in expected_topics(file, "fallow", 1, [], replicas=3)[0].config
    assert ("min.insync.replicas", "1") in expected_topics(file, "fallow", 1, [], replicas=1)[0].config


def test_every_topic_is_stamped_by_the_broker_and_led_only_by_what_has_all_of_it(file: TopicsFile) -> None:
    for spec in expected_topics(file, "fallow", 1, ["acme"]):
        config = dict(spec.config)
        assert config["message.timestamp.type"] == "LogAppendTime"
        assert config["unclean.leader.election.enable"] == "false"
        assert config.get("retention.bytes") == ("-1" if config["cleanup.policy"] == "delete" else None)


def test_the_broker_deletes_no_decision(file: TopicsFile) -> None:
    retention = {spec.name: dict(spec.config).get("retention.ms") for spec in expected_topics(file, "fallow", 1, [])}
    assert retention["fallow.decisions"] == "-1"
    assert retention["fallow.jobs"] == str(168 * 3_600_000)
    assert file.retention_ms("decisions") == 720 * 3_600_000


def test_an_operator_sets_how_long_a_topic_keeps_its_records(file: TopicsFile) -> None:
    longer = file.with_retention({"jobs": 400, "decisions": 8_760})
    retention = {spec.name: dict(spec.config).get("retention.ms") for spec in expected_topics(longer, "fallow", 1, [])}
    assert (retention["fallow.jobs"], retention["fallow.decisions"]) == (str(400 * 3_600_000), "-1")
    assert longer.retention_ms("decisions") == 8_760 * 3_600_000


@pytest.mark.parametrize("name", ["job", "snapshots"])
def test_a_retention_of_nothing_is_refused(file: TopicsFile, name: str) -> None:
    with pytest.raises(TopicsFileError, match=f"retention_hours.{name}: no topic with a retention"):
        file.with_retention({name: 5})


def test_what_is_as_expected_differs_in_nothing(file: TopicsFile) -> None:
    specs = expected_topics(file, "fallow", 2, ["acme"])
    assert differences(specs, as_expected(specs) | {"other": ActualTopic(1, {})}) == ()


def test_a_missing_topic_is_told(file: TopicsFile) -> None:
    specs = expected_topics(file, "fallow", 2, [])
    actual = as_expected(specs)
    del actual["fallow.jobs"]
    (found,) = differences(specs, actual)
    assert (found.topic, found.kind, found.is_growable) == ("fallow.jobs", DifferenceKind.MISSING, True)
    assert found.text == "fallow.jobs is missing; it should have 2 partitions"


def test_a_new_cell_lets_topics_grow(file: TopicsFile) -> None:
    found = differences(expected_topics(file, "fallow", 3, []), as_expected(expected_topics(file, "fallow", 2, [])))
    assert {d.kind for d in found} == {DifferenceKind.TOO_FEW_PARTITIONS}
    assert all(d.is_growable for d in found)
    assert "fallow.jobs has 2 partitions, 3 are needed; it may grow" in [d.text for d in found]


def test_a_keyed_topic_does_not_grow(file: TopicsFile) -> None:
    specs = expected_topics(file, "fallow", 1, [])
    actual = as_expected(specs)
    actual["fallow.submissions"] = ActualTopic(4, actual["fallow.submissions"].config)
    (found,) = differences(specs, actual)
    assert (found.kind, found.is_growable) == (DifferenceKind.TOO_FEW_PARTITIONS, False)


def test_shrinking_is_told_and_never_done(file: TopicsFile) -> None:
    found = differences(expected_topics(file, "fallow", 1, []), as_expected(expected_topics(file, "fallow", 2, [])))
    assert {d.kind for d in found} == {DifferenceKind.TOO_MANY_PARTITIONS}
    assert not any(d.is_growable or d.is_settable for d in found)
    assert all(d.is_harmless for d in found)
    assert "fallow.jobs has 2 partitions, only 1 are used; those of cells that are not in the cell file do no harm" in [
        d.text for d in found
    ]


def test_too_many_partitions_of_a_keyed_topic_stop_the_services_with_the_way_out(file: TopicsFile) -> None:
    specs = expected_topics(file, "fallow", 1, [])
    actual = as_expected(specs)
    actual["fallow.executor-slots"] = ActualTopic(13, actual["fallow.executor-slots"].config)
    (found,) = differences(specs, actual)
    assert (found.kind, found.is_harmless) == (DifferenceKind.TOO_MANY_PARTITIONS, False)
    assert found.text.endswith("Kafka cannot shrink it: make it anew as docs/operations.md says")


def test_other_settings_are_told_with_both_values(file: TopicsFile) -> None:
    specs = expected_topics(file, "fallow", 1, [])
    actual = as_expected(specs)
    config = dict(actual["fallow.decisions"].config or {}) | {"cleanup.policy": "compact"}
    del config["retention.bytes"]
    actual["fallow.decisions"] = ActualTopic(1, config)
    assert [d.text for d in differences(specs, actual)] == [
        "fallow.decisions has cleanup.policy=compact, it should be delete",
        "fallow.decisions has retention.bytes=nothing, it should be -1",
    ]


def test_settings_that_are_not_known_are_not_judged(file: TopicsFile) -> None:
    specs = expected_topics(file, "fallow", 1, [])
    assert differences(specs, {spec.name: ActualTopic(spec.partitions, None) for spec in specs}) == ()


@pytest.mark.parametrize(
    ("tenants", "told"),
    [(["a b"], "letters"), (["a_b", "a.b"], "collides"), (["x", "x"], "collides"), (["y" * 250], "at most 249")],
)
def test_tenants_whose_names_kafka_does_not_take_are_refused(file: TopicsFile, tenants: list[str], told: str) -> None:
    with pytest.raises(TopicsFileError, match=told):
        expected_topics(file, "fallow", 1, tenants)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("topics: [", "not YAML"),
        ("{}", "topics: is missing"),
        ("topics: {a: {partitions: 0, cleanup: delete, retention_hours: 1, record_bytes_max: 2000}}", "topics.a.part"),
        ("topics: {a: {partitions: 1, cleanup: delete, record_bytes_max: 2000}}", "retention_hours must be there"),
        ("topics: {a: {partitions: 1, cleanup: compact, record_bytes_max: 2000, colour: red}}", "topics.a.colour"),
    ],
)
def test_a_wrong_file_is_refused_by_field(text: str, told: str) -> None:
    with pytest.raises(TopicsFileError, match=told):
        parse_topics(text)
