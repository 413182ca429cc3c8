"""What a machine offers, and what of it outlives its agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fallow.services.executor.node_registration import WrongOffer, home_of, offer_of
from fallow.services.executor.processes.folders.state_folder import (
    BOOTS_KEPT,
    StateFolder,
    StateFolderInUse,
    StateFolderUnusable,
)
from fallow.services.executor.processes.machine import NoDevices, count_devices
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.events.fields.values import NodeRole
from fallow.shared.runtime.errors.endings import ending_of

POOLS = (
    Pool(name="virtual", gpus=8),
    Pool(name="real", gpus=8, gpus_per_node=4, gpu_type="h100", role=NodeRole.INFERENCE, driver="process"),
)
FILE = CellFile(cells=(CellPart(name="east", ordinal=0, pools=POOLS),), tenants=(Tenant(name="ada"),))


def test_a_machine_is_a_node_of_its_pool_with_what_it_has() -> None:
    cell, pool = home_of(FILE, "real", "east")
    spec = offer_of("machine-1", pool, 4, {"zone": "a", "address": "10.0.0.1"})
    assert (cell.name, spec.pool, spec.gpu_type, spec.gpus, spec.role) == ("east", "real", "h100", 4, "inference")
    assert spec.cpu_milli >= 1_000
    assert spec.memory_mib > 0
    assert list(spec.labels) == ["address", "zone"]


@pytest.mark.parametrize(
    ("pool", "cell", "words"),
    [
        ("none", None, "pools for processes are: real"),
        ("virtual", None, "needs driver: process"),
        ("real", "west", "a pool of cell east"),
    ],
)
def test_a_pool_that_cannot_be_is_told_with_the_rule(pool: str, cell: str | None, words: str) -> None:
    with pytest.raises(WrongOffer, match=words):
        home_of(FILE, pool, cell)


def test_a_machine_that_its_pool_does_not_take_is_refused() -> None:
    pool = POOLS[1].model_copy(update={"nodes": ("gpu-*", "old-1")})
    with pytest.raises(WrongOffer, match=r"node = 'machine-1': pool real takes only gpu-\*, old-1"):
        offer_of("machine-1", pool, 4, {})
    assert offer_of("gpu-7", pool, 4, {}).id == "gpu-7"


def test_a_machine_with_more_gpus_than_its_pool_foresees_is_refused() -> None:
    with pytest.raises(WrongOffer, match="gpus = 5: a node of pool real has at most 4"):
        offer_of("machine-1", POOLS[1], 5, {})


def test_devices_are_counted_as_the_driver_lists_them(tmp_path: Path) -> None:
    for device in ("0000:00:04.0", "0000:00:05.0"):
        (tmp_path / device).mkdir()
    assert count_devices(tmp_path) == 2


def test_devices_are_counted_as_nvidia_smi_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: H100 (UUID: a)'; echo 'GPU 1: H100 (UUID: b)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert count_devices(tmp_path / "none") == 2
    program.write_text("#!/bin/sh\necho 'no driver' >&2; exit 9\n")
    with pytest.raises(NoDevices, match="no driver"):
        count_devices(tmp_path / "none")


def test_a_machine_without_nvidias_driver_must_say_how_many_gpus_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoDevices, match="say how many there are"):
        count_devices(tmp_path / "none")


def test_a_boot_outlives_the_agent_and_not_the_machine_or_another_node(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state", "machine-1")
    assert folder.boot() is None
    boot = folder.new_boot()
    folder.close()
    again = StateFolder(tmp_path / "state", "machine-1")
    assert again.boot() == boot
    assert again.new_boot() != boot
    again.close()
    other = StateFolder(tmp_path / "state", "machine-2")
    assert other.boot() is None
    other.close()
    known = json.loads((tmp_path / "state" / "boot.json").read_text())
    (tmp_path / "state" / "boot.json").write_text(json.dumps({**known, "machine": "another boot of the kernel"}))
    rebooted = StateFolder(tmp_path / "state", "machine-1")
    assert rebooted.boot() is None
    rebooted.close()


def test_a_folder_knows_the_last_boots_that_began_with_it_and_none_of_another(tmp_path: Path) -> None:
    folder, other = StateFolder(tmp_path / "state", "machine-1"), StateFolder(tmp_path / "other", "machine-1")
    boots = [folder.new_boot() for _ in range(BOOTS_KEPT + 1)]
    known = json.loads((tmp_path / "state" / "boot.json").read_text())
    (tmp_path / "state" / "boot.json").write_text(json.dumps({**known, "machine": "another boot of the kernel"}))
    assert [folder.has_begun(boot) for boot in boots] == [False, *[True] * BOOTS_KEPT]
    assert not folder.has_begun(other.new_boot())
    folder.close()
    renamed = StateFolder(tmp_path / "state", "machine-2")
    assert not renamed.has_begun(boots[-1])
    renamed.close()
    other.close()


def test_a_folder_that_an_earlier_release_wrote_knows_its_boot(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, "machine-1")
    (tmp_path / "boot.json").write_text(json.dumps({"machine": "m", "node": "machine-1", "boot": "m-1"}))
    assert folder.has_begun("m-1")
    folder.close()


@pytest.mark.parametrize("left", ["", "\0" * 90])
def test_a_boot_of_which_a_loss_of_power_left_only_the_files_name_is_over(tmp_path: Path, left: str) -> None:
    folder = StateFolder(tmp_path / "state", "machine-1")
    folder.new_boot()
    (tmp_path / "state" / "boot.json").write_text(left)
    assert folder.boot() is None
    folder.close()


def test_a_state_folder_that_cannot_be_made_ends_the_agent_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateFolderUnusable, match=r"^state_dir = .*/file/x: cannot be used: Not a directory$") as told:
        StateFolder(tmp_path / "file" / "x", "machine-1")
    found = ending_of(told.value)
    assert found is not None
    assert (found[0].event, found[0].exit_code) == ("the state folder cannot be used", 2)


def test_one_agent_at_a_time_has_a_state_folder(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, "machine-1")
    with pytest.raises(StateFolderInUse, match="another agent is at work"):
        StateFolder(tmp_path, "machine-1")
    folder.close()
    StateFolder(tmp_path, "machine-1").close()
