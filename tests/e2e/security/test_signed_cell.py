"""A cell with keys on a real Kafka: an impostor decides nothing and stops no service, and keys are changed while it
runs by the very commands of docs/operations.md.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import SIGNATURE_HEADER, Decision, next_chain
from fallow.shared.log.follower import Follower
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.log.opening import layout_of
from fallow.shared.log.port import Outgoing
from fallow.shared.runtime.files.cell_file import load_cell_file
from tests.cli.usage.test_commands import call
from tests.contract.eventually import eventually
from tests.e2e.worlds.running_cell import CELL, CELL_FILE, RunningCell, a_job, in_full, running_cell
from tests.signing import STRANGERS, signed

pytestmark = pytest.mark.real_kafka

READERS = ("placement", "queueing", "loaning", "projector", "metrics", "executor")
LOOKING = tuple(service for service in READERS if service != "loaning")
"""Loaning does not look into the records of a cell in which no job may yield."""
OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"
Fallow = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fallow(kafka: str, redis_url: str, namespace: str, tmp_path: Path) -> Fallow:
    where = {"FALLOW_KAFKA": kafka, "FALLOW_REDIS": redis_url, "FALLOW_NAMESPACE": namespace}
    return lambda *words: call(*words, FALLOW_CELL_FILE=str(tmp_path / "cell.yaml"), **where)


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    return folder


def with_keys(*lines: str, from_version: int = 1) -> str:
    """The cell file with these lines as keys."""
    keys = "".join(f"\n        {line}" for line in lines)
    signing = f"    signing:\n      from_version: {from_version}\n      keys:{keys}\n"
    return CELL_FILE.replace("    ordinal: 0\n", f"    ordinal: 0\n{signing}")


def own_secrets(secrets: Path) -> Callable[[str], Mapping[str, str]]:
    return lambda name: {"FALLOW_SECRETS_DIR": str(secrets)} if name == "placement" else {}


async def forged(cell: RunningCell, service: str) -> float:
    """How many forged records this service has passed over."""
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"http://127.0.0.1:{cell.services.port(service)}/metrics")).text
    found = re.search(rf'^fallow_forged_decisions_total{{cell="{CELL}"}} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def forgeries(cell: RunningCell, honest: Mapping[str, bytes]) -> list[Outgoing]:
    """Decisions of the right version: unsigned, of a foreign key, with headers that were seen, unreadable."""
    state = cell.state
    closed = Decision(cell=CELL, version=state.version + 1, epoch=state.epoch, at_ms=state.at_ms)
    (unsigned,) = signed(cell.layout, [closed], None, state.chain)
    (foreign,) = signed(cell.layout, [closed], STRANGERS, state.chain)
    replayed = replace(foreign, headers=tuple((name, honest.get(name, old)) for name, old in foreign.headers))
    (ahead,) = signed(cell.layout, [replace(closed, version=closed.version + 9)], STRANGERS, state.chain)
    garbage = b'{"of": "no release"}'
    chain = next_chain(state.chain, garbage).encode()
    headers = tuple((name, chain if name == "chain" else old) for name, old in unsigned.headers)
    return [unsigned, foreign, replayed, ahead, replace(unsigned, value=garbage, headers=headers)]


async def test_an_impostor_decides_nothing_and_stops_nobody(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, secrets: Path, fallow: Fallow
) -> None:
    line = call("cell", "key", str(secrets / "fallow_signing_key")).stdout.strip()
    cell_file = with_keys(line)
    own = own_secrets(secrets)
    async with running_cell(kafka, redis_url, namespace, tmp_path, cell_file=cell_file, own=own) as cell:
        await cell.submit(a_job("before"))
        await cell.until_over("before")
        tp = cell.layout.tp("decisions", CELL)
        honest = dict((await cell.log.last_before({tp: cell.state.offset + 1}))[tp].headers)
        assert SIGNATURE_HEADER in honest
        for _ in range(3):
            await cell.log.publish(forgeries(cell, honest))
        await cell.submit(a_job("behind"))
        await cell.until_over("behind")
        for service in LOOKING:
            await eventually(partial(has_passed_over, cell, service, 15))
        assert await cell.services.not_ready() == {}
        assert cell.problems() == []
        verified = fallow("verify")
        assert verified.returncode == 0, verified.stdout
        assert "15 records of the skipped that no key of the cell proves" in verified.stdout
        tailed = fallow("log", "tail", "-n", "200")
        assert "behind" in tailed.stdout
        assert "no key of the cell proves this record, it is passed over" in tailed.stderr
        why = fallow("log", "why", "behind")
        assert (why.returncode, "passed over" in why.stderr) == (0, True)
        exported = tmp_path / "log.jsonl.gz"
        assert fallow("log", "export", str(exported)).returncode == 0
        assert "15 records of the skipped" in fallow("verify", "--file", str(exported)).stdout
    private = (secrets / "fallow_signing_key").read_text().partition(":")[2].strip()
    assert not [path for path in (tmp_path / "run").iterdir() if private in path.read_text()]


async def has_passed_over(cell: RunningCell, service: str, count: int) -> bool:
    return await forged(cell, service) == count


def commands_of(section: str) -> list[str]:
    """What this section of docs/operations.md has a person run, in its order: commands in code."""
    text = OPERATIONS.read_text(encoding="utf-8").partition(f"### {section}\n")[2].partition("\n#")[0]
    steps = "\n".join(line for line in text.splitlines() if re.match(r"\d\. |   ", line))
    return re.findall(r"`((?:fallow|mv) [^`]+)`", steps)


async def folded(cell: RunningCell) -> CellState:
    """The state of a reader that starts afresh with the cell file as it is now."""
    file = load_cell_file(cell.folder / "cell.yaml")
    follower = Follower(cell.log, layout_of(file, cell.layout.namespace), CELL, snapshots=False)
    await follower.start()
    await follower.catch_up()
    await follower.stop()
    assert follower.state.skipped == 0
    return follower.state


async def until_over(cell: RunningCell, job: str) -> None:
    await cell.submit(a_job(job))

    async def is_over() -> bool:
        return in_full(job) in (await folded(cell)).finished

    await eventually(is_over, within_s=30)


async def test_a_key_is_changed_while_the_cell_runs_by_the_commands_of_the_page(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, secrets: Path, fallow: Fallow
) -> None:
    first = call("cell", "key", str(secrets / "fallow_signing_key")).stdout.strip()
    run = iter(commands_of("Change the key"))
    own = own_secrets(secrets)

    def say(*expected: str, path: Path = tmp_path) -> str:
        """Run the next command of the page, which is this one."""
        words = next(run).split()
        assert tuple(words) == expected
        given = [str(path / word) if word.startswith("secrets/") else word for word in words]
        if given[0] == "mv":
            shutil.move(given[1], given[2])
            return ""
        done = fallow(*given[1:])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    async with running_cell(kafka, redis_url, namespace, tmp_path, cell_file=with_keys(first), own=own) as cell:
        await until_over(cell, "first")
        second = say("fallow", "cell", "key", "secrets/next").strip()
        (tmp_path / "cell.yaml").write_text(with_keys(first, second))
        say("fallow", "cell", "reload")
        say("mv", "secrets/next", "secrets/fallow_signing_key")
        await cell.services.restart("placement")
        await until_over(cell, "second")
        told = re.search(r"versions 1 to (\d+)", say("fallow", "verify"))
        assert told is not None
        retired = f"{first}\n          until_version: {told[1]}"
        (tmp_path / "cell.yaml").write_text(with_keys(second, retired))
        say("fallow", "cell", "reload")
        await until_over(cell, "third")
        assert "holds offsets" in say("fallow", "log", "repair")
        assert list(run) == []
        assert {name: await forged(cell, name) for name in READERS} == dict.fromkeys(READERS, 0.0)
        assert await cell.services.not_ready() == {}
        newest = SigningKey.read((secrets / "fallow_signing_key").read_text())
        assert second == f"- public: {newest.public}"


async def test_a_placement_without_a_key_of_the_cell_is_not_ready_and_writes_nothing(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path, secrets: Path, fallow: Fallow
) -> None:
    line = call("cell", "key", str(secrets / "fallow_signing_key")).stdout.strip()
    own = own_secrets(secrets)
    async with running_cell(kafka, redis_url, namespace, tmp_path, cell_file=with_keys(line), own=own) as cell:
        (secrets / "fallow_signing_key").unlink()
        before = (await folded(cell)).version
        await cell.services.restart("placement")

        async def says_why() -> bool:
            why = (await cell.services.not_ready()).get("placement", "")
            return "this process has none: see FALLOW_SIGNING_KEY" in why

        await eventually(says_why, within_s=30)
        assert (await folded(cell)).version in (before, before + 1), "the writer that left put down its last words"
