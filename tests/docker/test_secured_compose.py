"""The compose files of a cell that requires passwords, on a real engine."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError

from fallow.shared.log.admin.access_rules import Operation, Pattern, Resource
from fallow.shared.log.opening import declared_access
from fallow.shared.runtime.files.cell_file import load_cell_file
from fallow.shared.runtime.kafka_access import KafkaAccess, Mechanism, Protocol
from fallow.shared.runtime.stack.ports import LOCAL, free_port
from fallow.shared.view.keys import keys_of
from tests.docker.composed import TOP, Composed, jobs, obstacle
from tests.e2e.security.test_secured import may_write

pytestmark = pytest.mark.docker

FILES = ("docker-compose.yml", "deploy/compose/secured.yaml")
META = keys_of("fallow", "main")[0]
SERVICES = ("admission", "queueing", "loaning", "placement", "executor", "projector", "metrics")
EVERY_PROCESS = "for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do tr '\\0' '\\n' <$f; done 2>/dev/null; true"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secrets")


@pytest.fixture(scope="module")
def cell(folder: Path) -> Iterator[Composed]:
    reason = obstacle() or (None if shutil.which("openssl") else "there is no openssl on the PATH")
    if reason is not None:
        pytest.skip(reason)
    more = {"FALLOW_SECRETS": str(folder)}
    ports = free_port(), free_port(), free_port()
    cell = Composed(f"fallow-{secrets.token_hex(4)}", ports, FILES, more)
    try:
        cell.compose("build", "init")
        made = subprocess.run(
            [TOP / "deploy/compose/make-secrets.sh"], env=cell.environment, capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stderr
        cell.up()
        yield cell
    finally:
        cell.compose("down", "--volumes", "--timeout", "10")


def kafka_access(cell: Composed, folder: Path, user: str) -> KafkaAccess:
    password = (folder / "kafka" / "users" / user).read_text()
    address = f"{LOCAL}:{cell.ports[0]}"
    return KafkaAccess(address, Protocol.SASL_SSL, Mechanism.SCRAM_SHA_512, user, password, folder / "ca.pem")


def redis(cell: Composed, folder: Path, user: str) -> Redis:
    password = (folder / "redis" / user).read_text()
    return Redis(LOCAL, cell.ports[1], username=user, password=password, decode_responses=True)


def test_a_person_submits_a_job_and_sees_how_it_went(cell: Composed) -> None:
    words = ("run", "--rm", "-T", "operator", "submit", "-", "--tenant", "vision", "--until", "ended", "--json")
    told = json.loads(cell.compose(*words, stdin=json.dumps(jobs("one", 5, 300))).splitlines()[-1])
    assert set(told["jobs"].values()) == {"finished"}
    shown = cell.compose("run", "--rm", "-T", "operator", "jobs", "--json").splitlines()[-1]
    assert {job["status"] for job in json.loads(shown)["jobs"]} == {"finished"}


async def test_each_principal_writes_what_is_declared_for_it_and_nothing_else(cell: Composed, folder: Path) -> None:
    rules = declared_access(load_cell_file(TOP / "deploy/cell.yaml"), "fallow")
    topics = sorted({r.name for r in rules if r.resource is Resource.TOPIC and r.pattern is Pattern.LITERAL})
    principals = (*SERVICES, "operator")
    done = {(who, topic) for who in principals for topic in await may_write(kafka_access(cell, folder, who), topics)}
    assert done == {(r.principal, r.name) for r in rules if r.operation == Operation.WRITE}
    assert {who for who, topic in done if topic == "fallow.decisions"} == {"placement"}


def test_redis_lets_in_whom_it_must(cell: Composed, folder: Path) -> None:
    with pytest.raises(AuthenticationError):
        Redis(LOCAL, cell.ports[1]).ping()
    with pytest.raises(NoPermissionError):
        redis(cell, folder, "reader").hset(META, "version", "1")
    with pytest.raises(NoPermissionError):
        redis(cell, folder, "loader").hget(META, "version")
    assert redis(cell, folder, "reader").hget(META, "version") is not None


def test_rights_and_users_are_as_declared(cell: Composed, folder: Path) -> None:
    assert json.loads(cell.compose("run", "--rm", "-T", "init", "fallow", "topics", "check", "--json"))[
        "rights_checked"
    ]
    url = f"redis://admin:{(folder / 'redis' / 'admin').read_text()}@{LOCAL}:{cell.ports[1]}/0"
    words = [str(TOP / ".venv/bin/fallow"), "--redis", url, "view", "check", "--json"]
    done = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == {"ok": True, "differences": []}


def test_no_secret_is_in_a_log_or_in_what_the_kernel_shows_of_a_process(cell: Composed, folder: Path) -> None:
    files = [*(folder / "kafka/users").iterdir(), *(folder / "kafka/own").iterdir(), *(folder / "redis").iterdir()]
    canaries = {file.read_text() for file in files}
    assert len(canaries) >= 12
    said = cell.compose("logs", "--no-color")
    shown = "".join(
        cell.compose("exec", "-T", name, "sh", "-c", EVERY_PROCESS) for name in ("kafka", "valkey", *SERVICES)
    )
    assert "placement" in shown
    assert [word for word in canaries if word in said or word in shown] == []


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_sees_its_own_secrets_alone(cell: Composed, folder: Path, name: str) -> None:
    own = set((folder / name).iterdir())
    others = [file.read_text() for file in folder.glob("*/fallow_*") if file not in own]
    script = "cat /run/secrets/* /etc/fallow/secrets/* /etc/fallow/*/secrets/* /var/lib/fallow/* 2>/dev/null; true"
    seen = cell.compose("exec", "-T", name, "sh", "-c", script)
    assert (folder / name / "fallow_kafka_password").read_text() in seen
    assert [word for word in others if word in seen] == []
