"""What tests share: one Kafka and one Redis for the whole run, started when first asked for, and a fresh namespace
each.

`kafka` is the address of a real Kafka; where there is none, its tests are skipped with the reason. `any_kafka` takes
the embedded broker too.
"""

from __future__ import annotations

import gc
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fallow.shared.runtime.stack import docker
from fallow.shared.runtime.stack.choose import Choice, choose_kafka, choose_redis
from fallow.shared.runtime.stack.server import Source
from tests.hypothesis_profile import counted, never_reached, shown, today
from tests.suite_order import spread

STACKS = "stacks"
WHOLE_STACKS = ("chaos", "docker", "e2e")
"""Folders whose tests run all services at once."""

LOADS = ("test_bench.py", "test_overload.py", "test_outages.py")
"""Of these those that offer more than the machine takes, or stop what runs on it."""

SERVERS = ("kafka_choice", "redis_choice")
"""Fixtures that start a server when they are first asked for."""

YOUNG_OBJECTS = 10_000
"""After so many new objects the garbage collector looks at them: 700 are too few for worlds of thousands."""

CHOICES = pytest.StashKey[dict[str, Choice]]()
SPENT = pytest.StashKey[dict[str, float]]()
"""Seconds by folder of tests, setup and teardown counted where they ran."""

REACHED = pytest.StashKey[Counter[tuple[str, bool]]]()
"""How many examples of properties reached what these are about, and how many did not."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-servers", action="store_true", help="leave out all tests that need a Kafka or a Redis")


def pytest_configure(config: pytest.Config) -> None:
    # xdist writes the group of a test there; with a pytest that has no such attribute it scatters them, without a word.
    if config.getoption("dist", "no") == "loadgroup" and not hasattr(pytest.Item, "_nodeid"):
        raise pytest.UsageError("this pytest keeps no group of tests on one core: take that of requirements.lock")
    config.stash[CHOICES] = {}
    config.stash[REACHED] = Counter()
    config.pluginmanager.register(Stopwatch(config.stash.setdefault(SPENT, {})))
    config.pluginmanager.register(ReachCount(config.stash[REACHED]))


class Stopwatch:
    """Adds up what the tests of each folder took, on whichever process they ran."""

    def __init__(self, spent: dict[str, float]) -> None:
        self._spent = spent

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folder = "/".join(Path(report.location[0]).parts[:2])
        self._spent[folder] = self._spent.get(folder, 0.0) + report.duration


class ReachCount:
    """Adds up what properties have reached, on whichever process they ran: their reports carry it. A property that
    never reached what it is about in many examples fails; where many tests share the examples, the whole run does.
    """

    def __init__(self, reached: Counter[tuple[str, bool]]) -> None:
        self._reached = reached

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        rows = list[tuple[str, bool, int]]()
        try:
            result = yield
        finally:
            rows += counted()
            item.user_properties += [("reached", row) for row in rows]
        if never := never_reached(rows):
            pytest.fail(f"no example reached what the property is about: {'; '.join(never)}", pytrace=False)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            for name, row in report.user_properties:
                if name == "reached":
                    self._add(row)

    def _add(self, row: Any) -> None:
        what, is_reached, count = row
        self._reached[what, is_reached] += count

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.never() and not hasattr(session.config, "workerinput"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for what in self.never():
            terminalreporter.write_line(f"FAILED: no example of any test reached what it is about: {what}", red=True)

    def never(self) -> list[str]:
        """What no example of all that ran has reached."""
        return never_reached((what, is_reached, count) for (what, is_reached), count in self._reached.items())


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in a hook of the same name
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where tests run in several processes, those of one file stay together. Those that are the hardest on the machine
    come first and run one after the other: they wait for much, and meanwhile the others try out properties.
    """
    if config.getoption("--no-servers"):
        items[:] = [item for item in items if not _needs_a_server(item)]
    if "CI" in os.environ:
        _let_take_turns(items)
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        item.add_marker(pytest.mark.xdist_group(STACKS if _is_hard_on_the_machine(item) else item.location[0]))
    items[:] = _in_order(items)


def _in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    hard = [item for item in items if _is_hard_on_the_machine(item)]
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if not _is_hard_on_the_machine(item):
            files.setdefault(item.path, []).append(item)
    waiting = [file for file in files.values() if any(map(_needs_a_server, file))]
    computing = [file for file in files.values() if not any(map(_needs_a_server, file))]
    return [*hard, *(item for file in spread(waiting, computing) for item in file)]


def pytest_collection_finish(session: pytest.Session) -> None:
    """All tests and all that they import are there to the end: the garbage collector need not go through them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


def _let_take_turns(items: list[pytest.Item]) -> None:
    """Of each file's tests that are marked `by_turns` all but one are skipped, and another one each day."""
    marked: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("by_turns"):
            marked.setdefault(item.path, []).append(item)
    for some in marked.values():
        for number, item in enumerate(some):
            days = (number - today()) % len(some)
            if days:
                item.add_marker(pytest.mark.skip(f"it takes turns in CI with its neighbours: its day is in {days}"))


def _needs_a_server(item: pytest.Item) -> bool:
    asked_for = getattr(item, "fixturenames", ())
    marked = item.get_closest_marker("real_kafka") or item.get_closest_marker("docker")
    return marked is not None or any(name in asked_for for name in SERVERS)


def _is_hard_on_the_machine(item: pytest.Item) -> bool:
    folder, *_ = item.path.relative_to(Path(__file__).parent).parts
    return folder in WHOLE_STACKS and (folder != "e2e" or item.path.name in LOADS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for what, choice in config.stash[CHOICES].items():
        terminalreporter.write_line(f"{what}: {choice.explanation()}")
    for line in shown(config.stash[REACHED]):
        terminalreporter.write_line(line)
    spent = config.stash[SPENT]
    if len(spent) > 1:
        terminalreporter.write_line("seconds by folder: " + ", ".join(spent_by_folder(spent)))


def spent_by_folder(spent: dict[str, float]) -> list[str]:
    """The folders with what they took, the slowest first."""
    return [f"{folder} {seconds:.0f}" for folder, seconds in sorted(spent.items(), key=lambda each: -each[1])]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("docker"):
        reason = docker.obstacle(docker.KAFKA_IMAGE)
        if reason:
            pytest.skip(reason)


def running(config: pytest.Config, what: str, choice: Choice) -> Iterator[Choice]:
    config.stash[CHOICES][what] = choice
    choice.server.start()
    yield choice
    choice.server.stop()
    if isinstance(choice.server, docker.Container):
        choice.server.remove()


@pytest.fixture(scope="session")
def kafka_choice(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Choice]:
    yield from running(pytestconfig, "Kafka", choose_kafka(tmp_path_factory.mktemp("kafka")))


@pytest.fixture(scope="session")
def redis_choice(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Choice]:
    yield from running(pytestconfig, "Redis", choose_redis(tmp_path_factory.mktemp("redis")))


@pytest.fixture(scope="session")
def any_kafka(kafka_choice: Choice) -> str:
    return kafka_choice.server.address


@pytest.fixture(scope="session")
def kafka(kafka_choice: Choice) -> str:
    if kafka_choice.server.source is Source.EMBEDDED:
        pytest.skip(f"needs a real Kafka: {kafka_choice.explanation()}")
    return kafka_choice.server.address


@pytest.fixture(autouse=True)
def real_kafka_where_marked(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("real_kafka"):
        request.getfixturevalue("kafka")


@pytest.fixture(scope="session")
def redis_url(redis_choice: Choice) -> str:
    return redis_choice.server.address


@pytest.fixture
def namespace() -> str:
    return f"t{secrets.token_hex(5)}"


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], Path]:
    def named(name: str) -> Path:
        path = tmp_path / name
        path.mkdir()
        return path

    return named
