"""The compose file agrees with the files that say the same for a machine without Docker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fallow.local.service_set import KINDS, ServiceKind
from fallow.services.executor.nodes_file import load_nodes
from fallow.shared.log.admin.topics import parse_topics
from fallow.shared.runtime.files.cell_file import load_cell_file
from fallow.shared.runtime.stack.docker import KAFKA_IMAGE, VALKEY_IMAGE

TOP = Path(__file__).parents[2]
SERVICES: dict[str, Any] = yaml.safe_load((TOP / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
FEED = [name for name, service in SERVICES.items() if service.get("profiles")]
OURS = [name for name in SERVICES if name not in {"kafka", "valkey"}]
OF_THE_PLACE = re.compile(r"(advertised\.)?listener.*|inter\.broker\.listener\.name|controller\..*|log\.dirs")


def properties() -> dict[str, str]:
    lines = (TOP / "deploy" / "kafka" / "server.properties").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("=", 1) for line in lines if line and not line.startswith("#")]
    return {key: value for key, value in pairs if not OF_THE_PLACE.fullmatch(key)}


def given_to_the_container() -> dict[str, str]:
    given = SERVICES["kafka"]["environment"].items()
    named = {name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in given}
    others = {"cluster.id", "heap.opts"}
    return {key: value for key, value in named.items() if key not in others and not OF_THE_PLACE.fullmatch(key)}


def test_kafka_is_set_as_it_is_without_docker() -> None:
    assert given_to_the_container() == properties()


def test_kafka_remembers_how_far_submissions_were_read_for_much_longer_than_it_keeps_them() -> None:
    topics = parse_topics((TOP / "deploy" / "kafka" / "topics.yaml").read_text(encoding="utf-8"))
    kept_ms = topics.retention_ms("submissions")
    assert kept_ms is not None
    assert int(properties()["offsets.retention.minutes"]) * 60_000 >= 100 * kept_ms


def test_the_servers_are_those_of_the_tests() -> None:
    assert (SERVICES["kafka"]["image"], SERVICES["valkey"]["image"]) == (KAFKA_IMAGE, VALKEY_IMAGE)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_of_service_has_its_container(kind: ServiceKind) -> None:
    assert SERVICES[kind.name]["command"] == ["python", "-m", kind.module]
    assert SERVICES[kind.name]["healthcheck"]


def test_the_virtual_nodes_fit_the_cell_file() -> None:
    cells = {cell.name: {pool.name for pool in cell.pools} for cell in load_cell_file(TOP / "deploy/cell.yaml").cells}
    nodes = load_nodes(TOP / "deploy/compose/nodes.jsonl")
    assert [node for cell, some in nodes.items() for node in some if node.pool not in cells[cell]] == []
    assert sum(len(some) for some in nodes.values()) == 32
    assert all(node.cpu_milli and node.memory_mib for some in nodes.values() for node in some)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_container_gives_up_what_it_does_not_need(name: str) -> None:
    service = SERVICES[name]
    assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert [port for port in service.get("ports", []) if not port.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_container_of_ours_runs_without_rights_and_cannot_write(name: str) -> None:
    service = SERVICES[name]
    assert (service["user"], service["read_only"], service["init"]) == ("10001:10001", True, True)


def test_only_the_load_generator_waits_to_be_asked_for() -> None:
    assert FEED == ["feed"]


class Overlay(yaml.SafeLoader):
    """Reads compose's own tag as what stands behind it."""


def plain(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        loader.flatten_mapping(node)
        return loader.construct_mapping(node, deep=True)
    assert isinstance(node, yaml.SequenceNode)
    return loader.construct_sequence(node, deep=True)


Overlay.add_constructor("!override", plain)
OVERLAY: dict[str, Any] = yaml.load((TOP / "deploy/compose/secured.yaml").read_text(encoding="utf-8"), Overlay)
SECURED: dict[str, Any] = OVERLAY["services"]
ACCESS: dict[str, Any] = yaml.safe_load((TOP / "deploy/kafka/access.yaml").read_text(encoding="utf-8"))["principals"]


def test_every_container_has_its_place_in_the_secured_cell() -> None:
    assert SECURED.keys() - {"operator"} == SERVICES.keys()


@pytest.mark.parametrize("name", sorted(set(OURS) - set(FEED) - {"init"}))
def test_each_service_is_its_own_principal_with_its_own_secrets_and_what_it_has_without(name: str) -> None:
    secured, bare = SECURED[name]["environment"], SERVICES[name]["environment"]
    assert secured["FALLOW_KAFKA_USERNAME"] == name
    assert name in ACCESS
    assert SECURED[name]["volumes"] == ["${FALLOW_SECRETS:-./secrets}/" + name + ":/run/secrets:ro"]
    of_the_place = {"FALLOW_REDIS"}  # a file among the secrets
    assert {key: value for key, value in bare.items() if key not in of_the_place}.items() <= secured.items()
    assert not of_the_place & secured.keys()
