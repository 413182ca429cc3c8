"""What a worker is told by its environment."""

from __future__ import annotations

import subprocess

from fallow.services.executor.policy.turn import Start
from fallow.services.executor.policy.worker_environment import (
    PORTS,
    PORTS_FROM,
    Gang,
    gang_of,
    master_port,
    worker_environment,
)
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import ProcessRun, WorkerPlace
from tests.executor.worlds.cells import Writer, node

RUN = ProcessRun(argv=("train",))


def a_gang(*nodes: str, address: str | None = None) -> Writer:
    specs = [node(1), replace(node(2), labels={} if address is None else {"address": address})]
    writer = Writer(specs)
    writer.start("job-1", *nodes, run=RUN, gpus=2)
    return writer


def test_a_gang_meets_at_the_node_of_its_first_rank_under_the_address_that_it_gives() -> None:
    known = gang_of(a_gang("node-2", "node-1", "node-2", address="10.0.0.2").state, "job-1", 1)
    assert known == Gang(3, ("node-2", "node-1"), "10.0.0.2", master_port("job-1", 1))


def test_a_node_without_an_address_is_reached_by_its_id() -> None:
    known = gang_of(a_gang("node-2").state, "job-1", 1)
    assert known is not None
    assert known.master_address == "node-2"


def test_an_attempt_that_the_log_does_not_have_has_no_gang() -> None:
    assert gang_of(a_gang("node-1").state, "job-1", 2) is None
    assert gang_of(a_gang("node-1").state, "job-2", 1) is None


def test_each_attempt_meets_at_a_port_of_its_own_below_those_that_systems_hand_out() -> None:
    ports = [master_port("job-1", attempt) for attempt in range(1, 100)]
    assert len(set(ports)) > 95
    assert all(PORTS_FROM <= port < PORTS_FROM + PORTS <= 32_768 for port in ports)


def test_a_worker_of_a_gang_on_a_thousand_nodes_of_long_names_starts() -> None:
    places = (WorkerPlace(rank=0, node="node-1", devices=(0,), gpu_milli=1000),)
    nodes = ("node-1", *(f"node-{number:04}-{'x' * 118}" for number in range(1_249)))
    order, gang = Start("node-1", "job-1", 4, places, RUN, 0), Gang(1_250, nodes, "10.0.0.2", 23_456)
    told = worker_environment(order, RUN, gang, places[0], {})
    assert subprocess.run(["/bin/true"], env=told, check=False).returncode == 0
    assert "FALLOW_NODES" not in told


def test_a_worker_is_told_its_ranks_its_gang_and_its_devices() -> None:
    places = tuple(WorkerPlace(rank=n, node="node-1", devices=(2 * n, 2 * n + 1), gpu_milli=2000) for n in (2, 3))
    order = Start("node-1", "job-1", 4, places, RUN, 0)
    gang = Gang(4, ("node-2", "node-1"), "10.0.0.2", 23_456)
    assert worker_environment(order, RUN, gang, places[1], {}) == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "10.0.0.2",
        "MASTER_PORT": "23456",
        "FALLOW_RANK": "3",
        "FALLOW_WORLD_SIZE": "4",
        "FALLOW_LOCAL_RANK": "1",
        "FALLOW_MASTER_ADDR": "10.0.0.2",
        "FALLOW_MASTER_PORT": "23456",
        "FALLOW_JOB": "job-1",
        "FALLOW_ATTEMPT": "4",
        "FALLOW_NODE": "node-1",
        "FALLOW_NODES": "node-2,node-1",
        "FALLOW_GPUS": "6,7",
        "FALLOW_GPU_MILLI": "2000",
        "CUDA_VISIBLE_DEVICES": "6,7",
    }


def test_a_worker_is_told_the_id_that_its_tenant_chose_and_the_tenant() -> None:
    places = (WorkerPlace(rank=0, node="node-1", devices=(0,), gpu_milli=1000),)
    gang = Gang(1, ("node-1",), "a", 1, array=("vision/many", 7))
    inherited = {"FALLOW_TENANT": "of the agent"}
    told = worker_environment(
        Start("node-1", "vision/many.7", 1, places, RUN, 0), RUN, gang, places[0], {**inherited, "FALLOW_JOB": "x"}
    )
    assert (told["FALLOW_TENANT"], told["FALLOW_JOB"], told["FALLOW_ARRAY_ID"]) == ("vision", "many.7", "many")
    assert not [name for name, value in told.items() if "/" in value]


def test_jobs_of_one_id_of_two_tenants_meet_at_ports_of_their_own() -> None:
    pairs = [(master_port(f"vision/job-{n}", 1), master_port(f"search/job-{n}", 1)) for n in range(100)]
    assert sum(ours != theirs for ours, theirs in pairs) > 95


def test_an_element_of_an_array_is_told_which_one_it_is() -> None:
    places = (WorkerPlace(rank=0, node="node-1", devices=(0,), gpu_milli=1000),)
    gang = Gang(1, ("node-1",), "a", 1, array=("many", 7))
    told = worker_environment(Start("node-1", "many.7", 1, places, RUN, 0), RUN, gang, places[0], {})
    assert (told["FALLOW_ARRAY_ID"], told["FALLOW_ARRAY_INDEX"]) == ("many", "7")


def test_the_jobs_own_environment_hides_the_agents_and_not_what_fallow_says() -> None:
    run = ProcessRun(argv=("train",), env={"HOME": "/job", "RANK": "9"}, checkpoint_dir="/c")
    places = (WorkerPlace(rank=0, node="node-1", devices=(0,), gpu_milli=500),)
    inherited = {"HOME": "/agent", "PATH": "/bin", "FALLOW_REDIS": "redis://:secret@cache"}
    told = worker_environment(
        Start("node-1", "job-1", 1, places, run, 0), run, Gang(1, ("node-1",), "a", 1), places[0], inherited
    )
    assert (told["HOME"], told["PATH"], told["RANK"], told["FALLOW_CHECKPOINT_DIR"]) == ("/job", "/bin", "0", "/c")
    assert "FALLOW_REDIS" not in told


def test_no_key_and_no_password_of_the_agent_reaches_a_worker() -> None:
    places = (WorkerPlace(rank=0, node="node-1", devices=(0,), gpu_milli=1000),)
    order, gang = Start("node-1", "job-1", 1, places, RUN, 0), Gang(1, ("node-1",), "a", 1)
    secrets = {"FALLOW_SIGNING_KEY": "of placement", "FALLOW_KAFKA_PASSWORD": "of the agent"}
    told = worker_environment(order, RUN, gang, places[0], {**secrets, "HOME": "/root"})
    assert (told["HOME"], [name for name in secrets if name in told]) == ("/root", [])
