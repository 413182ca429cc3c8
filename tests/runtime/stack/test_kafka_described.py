"""Before Kafka's jars are there, it is told that they are fetched and where to; afterwards their version."""

from __future__ import annotations

from pathlib import Path

import pytest

from fallow.shared.runtime.stack.kafka_jars import KafkaFromJars, jars_folder


def test_jars_that_are_missing_are_told_to_be_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_CACHE_DIR", str(tmp_path / "cache"))
    server = KafkaFromJars(tmp_path / "kafka")
    assert server.description == f"Apache Kafka; its jars are fetched by Maven first, once, to {jars_folder()}"
    jars_folder().mkdir(parents=True)
    (jars_folder() / "kafka_2.13-4.3.1.jar").touch()
    assert server.description == "Apache Kafka 4.3.1 from its jars"
