"""A real Apache Kafka on this machine: its jars from Maven, one node in KRaft mode, a small heap.

The jars are copied once into a cache (FALLOW_CACHE_DIR, or ~/.cache/fallow); the storage is formatted once for each
data folder, so the same records are there after a restart.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from fallow.shared.runtime.stack.child import Child, StackError
from fallow.shared.runtime.stack.kafka_wire import answers, coordinates
from fallow.shared.runtime.stack.ports import LOCAL, free_ports
from fallow.shared.runtime.stack.server import Source

DEPLOY = Path(__file__).parents[3] / "deploy" / "kafka"
JAVA_VERSION_MIN = 17
FETCH_WAIT_S = 300
START_WAIT_S = 300.0
"""After a kill it looks through its log first. One that ends is noticed at once."""
COORDINATES_WAIT_S = 10.0
STOP_WAIT_S = 20.0
CLUSTER_ID = "RmFsbG93RmFsbG93RmFsbA"  # any 16 bytes do for one node
JAVA_OPTIONS = ("-Xms128m", "-XX:+UseSerialGC", "-Xshare:auto")
HEAP_MB_MAX = 512
# C1 only: up in under 2 s and small, which counts for more in tests than peak throughput.
QUICK_START = "-XX:TieredStopAtLevel=1"
NEVER = 2**63 - 1


def obstacle() -> str | None:
    """Why Kafka cannot be started from jars here, or None when it can be tried."""
    if not (DEPLOY / "pom.xml").exists():
        return "deploy/kafka is not beside the package"
    if shutil.which("java") is None:
        return "there is no java on the PATH"
    version = java_version()
    if version < JAVA_VERSION_MIN:
        return f"java is version {version}, Kafka needs {JAVA_VERSION_MIN}"
    if shutil.which("mvn") is None and not jars_folder().exists():
        return "there is no mvn on the PATH to fetch the jars with"
    return None


def java_version() -> int:
    """The major version of `java` on the PATH; 0 when it does not say."""
    asked = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    return int(found[1]) if found else 0


def cache_folder() -> Path:
    """Where downloads are kept between runs."""
    return Path(os.environ.get("FALLOW_CACHE_DIR") or Path.home() / ".cache" / "fallow")


def jars_folder() -> Path:
    """The folder of the jars that pom.xml names now: another pom.xml has another folder."""
    digest = hashlib.sha256((DEPLOY / "pom.xml").read_bytes()).hexdigest()[:12]
    return cache_folder() / f"kafka-{digest}"


def fetch_jars() -> Path:
    """Copies the jars into the cache if they are not there; two processes at once wait for each other."""
    folder = jars_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            copy_by_maven(folder)
    return folder


def copy_by_maven(folder: Path) -> None:
    """Lets Maven copy the runtime dependencies of pom.xml; the folder appears whole or not at all."""
    unfinished = folder.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"]
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(DEPLOY / "pom.xml"), *goal]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_WAIT_S)
    except subprocess.TimeoutExpired as late:
        raise StackError(f"Maven did not fetch Kafka's jars within {FETCH_WAIT_S} s") from late
    if done.returncode != 0:
        raise StackError(f"Maven could not fetch Kafka's jars:\n{(done.stdout + done.stderr)[-2000:]}")
    unfinished.rename(folder)


class KafkaFromJars:
    """One node of Apache Kafka with its data in `data_dir`.

    `durable` flushes each record before it is acknowledged, as server.properties has it; without it the log survives
    the end of the process but not of the machine, which is all that a test asks for. `quick_start` leaves Java's best
    compiler out: without it the first seconds are slower and the hours behind them quicker, TLS above all.
    `shown_port` is the port that clients are told, where they come by another way. `more` are further lines of
    server.properties: a node of several names the others there. `users` are made when the storage is formatted, with
    these passwords for SCRAM-SHA-512. It takes up to `heap_mb_max` of memory for its objects.
    """

    source = Source.JARS

    def __init__(
        self,
        data_dir: Path,
        *,
        durable: bool = False,
        quick_start: bool = True,
        shown_port: int | None = None,
        heap_mb_max: int = HEAP_MB_MAX,
        more: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.durable = durable
        self.quick_start = quick_start
        self.port, self.controller_port = free_ports(2)
        self.more, self._users, self._heap_mb_max = dict(more or {}), dict(users or {}), heap_mb_max
        self._shown_port = shown_port or self.port
        self._properties = data_dir / "server.properties"
        self._child: Child | None = None

    @property
    def address(self) -> str:
        """The bootstrap address; the same after a restart."""
        return f"{LOCAL}:{self.port}"

    @property
    def description(self) -> str:
        """Name and version, read from the jar; before there are any, that they are fetched."""
        jars = sorted(jars_folder().glob("kafka_2.13-*.jar"))
        if not jars:
            return f"Apache Kafka; its jars are fetched by Maven first, once, to {jars_folder()}"
        return f"Apache Kafka {jars[0].stem.removeprefix('kafka_2.13-')} from its jars"

    @property
    def pid(self) -> int:
        """Its process, for measuring."""
        if self._child is None:
            raise StackError("Kafka was not started")
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """Whether its process was started and has not ended."""
        return self._child is not None and self._child.is_running

    @property
    def exit_code(self) -> int | None:
        """That of its process."""
        return None if self._child is None else self._child.exit_code

    def start(self) -> None:
        """Starts the broker and waits for its answer, and for the first start also until it coordinates groups."""
        is_new = not self._has_storage
        self.launch()
        self.wait_until_up()
        if is_new and "listeners" not in self.more:  # elsewhere it may first require a login
            self._wait_until_it_coordinates()

    def launch(self) -> None:
        """Fetches the jars and formats the storage if that was not done, then starts the broker."""
        jars = fetch_jars()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._properties.write_text(self._server_properties(), encoding="utf-8")
        if not self._has_storage:
            self._format(jars)
        child = Child("Kafka", [*self._java(jars), "kafka.Kafka", str(self._properties)], self.data_dir / "kafka.log")
        self._child = child
        child.start()

    def wait_until_up(self) -> None:
        """Waits for its answer: one of several gives none before enough of the others are there."""
        assert self._child is not None, "launched before"
        self._child.wait_until(lambda: answers(LOCAL, self.port), wait_s=START_WAIT_S)

    def _wait_until_it_coordinates(self) -> None:
        assert self._child is not None, "launched before"
        deadline = time.monotonic() + COORDINATES_WAIT_S  # no more than that: consumers wait themselves
        self._child.wait_until(
            lambda: coordinates(LOCAL, self.port) or time.monotonic() > deadline, wait_s=START_WAIT_S
        )

    @property
    def _has_storage(self) -> bool:
        return (self.data_dir / "log" / "meta.properties").exists()

    def stop(self) -> None:
        """Ends the broker in order."""
        if self._child is not None:
            self._child.stop(wait_s=STOP_WAIT_S)

    def kill(self) -> None:
        """Ends the broker by SIGKILL; what it had acknowledged is in the page cache and stays."""
        if self._child is not None:
            self._child.kill()

    def tail(self) -> str:
        """The last lines of its output."""
        return "(no output)" if self._child is None else self._child.tail()

    def _server_properties(self) -> str:
        own = {
            "controller.quorum.voters": f"1@{LOCAL}:{self.controller_port}",
            "listeners": f"PLAINTEXT://{LOCAL}:{self.port},CONTROLLER://{LOCAL}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{LOCAL}:{self._shown_port}",
            "log.dirs": str(self.data_dir / "log"),
            **self.more,
        }
        if not self.durable:
            own["log.flush.interval.messages"] = str(NEVER)
        declared = (DEPLOY / "server.properties").read_text(encoding="utf-8")
        return declared + "\n" + "".join(f"{key}={value}\n" for key, value in own.items())

    def _java(self, jars: Path) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={DEPLOY / 'log4j2.xml'}"
        heap = f"-Xmx{self._heap_mb_max}m"
        return ["java", *JAVA_OPTIONS, heap, *([QUICK_START] if self.quick_start else []), logging, "-cp", f"{jars}/*"]

    def _format(self, jars: Path) -> None:
        arguments = ["format", "--cluster-id", CLUSTER_ID, "--config", str(self._properties)]
        for name, password in self._users.items():
            arguments += ["--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]"]
        command = [*self._java(jars), "kafka.tools.StorageTool", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StackError(f"the storage of Kafka could not be formatted:\n{done.stdout}{done.stderr}")
