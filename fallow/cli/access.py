"""What every command is told about where the cells are, and how it comes to them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import typer

from fallow.cli.errors.failures import Exit, end_with, refuse
from fallow.cli.errors.fence_line import FenceLine
from fallow.cli.errors.interrupts import cancelled_by_signals, end_if_interrupted
from fallow.shared.near import meant, there
from fallow.shared.runtime.addresses import REDIS_RULE, is_redis, without_password
from fallow.shared.runtime.files.text_file import TextFileError, read_text_file

if TYPE_CHECKING:
    from fallow.cli.errors.passed_over import Places
    from fallow.shared.client.direct import DirectClient
    from fallow.shared.cluster.model.config import CellFile
    from fallow.shared.log.layout import Layout
    from fallow.shared.runtime.kafka_access import KafkaAccess

T = TypeVar("T")

DEFAULT_KAFKA = "127.0.0.1:9092"
DEFAULT_REDIS = "redis://127.0.0.1:6379/0"
CELL_FILE = Path("deploy/cell.yaml")
PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Access:
    """The global options. An address is None where neither option nor environment gives one."""

    kafka: str | None
    redis: str | None
    namespace: str
    cell_file: Path | None
    said: Places = field(default_factory=dict, repr=False, compare=False)
    """Records of which this command has said that it passes them over."""

    @property
    def kafka_address(self) -> str:
        """Where Kafka is. A name of a source ("jars") says what to start, and is no address."""
        return _address("FALLOW_KAFKA", self.kafka) or DEFAULT_KAFKA

    @property
    def kafka_access(self) -> KafkaAccess:
        """Kafka's address and the user of the command, from the same settings as a service. Raises SettingsError."""
        from fallow.shared.runtime.settings import KafkaSecurity  # noqa: PLC0415 - keeps `fallow --help` quick

        return KafkaSecurity.load().access_at(self.kafka_address)

    @property
    def redis_address(self) -> str:
        """Where Redis is."""
        return _address("FALLOW_REDIS", self.redis) or _redis_of_secret_file() or DEFAULT_REDIS

    @property
    def redis_shown(self) -> str:
        """Where Redis is, as it may be shown."""
        return without_password(self.redis_address)

    @property
    def cell_path(self) -> Path:
        """The cell file: the one named, else the one of the current folder, else the one that comes along."""
        if self.cell_file is not None:
            return self.cell_file
        return CELL_FILE if CELL_FILE.exists() else PACKAGE / CELL_FILE

    def cells(self) -> CellFile:
        """The cell file, read. Raises CellFileError."""
        from fallow.shared.runtime.files.cell_file import load_cell_file  # noqa: PLC0415 - keeps `fallow --help` quick

        return load_cell_file(self.cell_path)

    def layout(self) -> Layout:
        """Where the records of these cells are. Raises CellFileError."""
        return self._layout_of(self.cells())

    def _layout_of(self, file: CellFile) -> Layout:
        # Not by shared.log.opening, which brings along everything that a service needs and a command does not.
        from fallow.cli.errors.passed_over import TellingSigners  # noqa: PLC0415 - keeps `fallow --help` quick
        from fallow.shared.log.layout import Layout  # noqa: PLC0415 - the same

        ordinals = {cell.name: cell.ordinal for cell in file.cells}
        signers = TellingSigners(file, self.cell_path, self.said)
        return Layout(self.namespace, ordinals, signers, frozenset(file.own_topics))

    def cell(self, given: str | None) -> str:
        """The cell that is named, or the only one. Ends the command where that is not clear."""
        names = [cell.name for cell in self.cells().cells]
        if given is None and len(names) == 1:
            return names[0]
        if given is None or given not in names:
            rule = there(names)
            if given is None:
                end_with(Exit.USAGE, f"fallow: --cell is needed: {rule}")
            refuse("--cell", given, f"is unknown{meant(given, names)}: {rule}")
        return given

    @asynccontextmanager
    async def client(self, *, tells_fence: bool = True) -> AsyncIterator[DirectClient]:
        """A client, let go of in the end; it tells of a cell that is fenced. Raises CellFileError; NoCellHere where
        what is not there yet never comes.
        """
        from fallow.shared.client.direct import DirectClient  # noqa: PLC0415 - the same
        from fallow.shared.client.port import ClientUnavailable, NotYet  # noqa: PLC0415 - the same
        from fallow.shared.log.kafka.log import KafkaLog  # noqa: PLC0415 - the same
        from fallow.shared.view.redis_view import RedisFunctions  # noqa: PLC0415 - the same

        functions = RedisFunctions(self.redis_address)
        log = KafkaLog(self.kafka_access, "fallow-cli")
        on_fenced = FenceLine().say if tells_fence else None
        file = self.cells()
        client = DirectClient(
            log,
            functions,
            self._layout_of(file),
            source="fallow-cli",
            on_fenced=on_fenced,
            known_tenants=[tenant.name for tenant in file.tenants],
        )
        try:
            yield client
        except NotYet as error:
            raise await self._no_cell(error.cell) or error from error
        except ClientUnavailable as error:
            raise await self._no_topics(error) or error from error
        finally:
            await client.stop()
            await functions.stop()

    async def _no_cell(self, cell: str) -> Exception | None:
        from fallow.cli.cells_there import no_such  # noqa: PLC0415 - the same

        return await no_such(self, cell)

    async def _no_topics(self, error: Exception) -> Exception | None:
        """What is to be told where Kafka answers, and has none of the topics of the namespace."""
        from fallow.cli.cells_there import no_topics  # noqa: PLC0415 - the same
        from fallow.shared.log.port import NoTopics  # noqa: PLC0415 - the same

        is_asked = isinstance(error.__cause__, NoTopics) or str(error).startswith("Kafka: offsets of ")
        return await no_topics(self) if is_asked else None


def _address(variable: str, given: str | None) -> str | None:
    if given is not None and ":" not in given:
        end_with(Exit.USAGE, f"fallow: {variable} = {given!r}: an address is needed here, with its port")
    return given


def _redis_of_secret_file() -> str | None:
    """The URL in the file `fallow_redis` of the folder of secrets, as services read it; None where there is none."""
    folder = os.environ.get("FALLOW_SECRETS_DIR")
    file = Path(folder or "", "fallow_redis")
    if not folder or not file.is_file():
        return None
    try:
        url = read_text_file(file).strip()
    except TextFileError as error:
        refuse("FALLOW_REDIS", str(file), str(error))
    if not is_redis(url):
        refuse("FALLOW_REDIS", str(file), f"what stands in this file {REDIS_RULE}")
    return url


def access_of(context: typer.Context) -> Access:
    """The global options of this call."""
    return cast("Access", context.obj)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run one command to its end."""
    return asyncio.run(cancelled_by_signals(work))


def in_turn(found: AsyncGenerator[T, None]) -> Iterator[T]:
    """What comes of several commands, each as soon as it is known. One event loop, and so one client, serves them
    all. Where the command is told to end none is begun any more.
    """

    async def next_one() -> T | None:
        return await anext(found, None)

    with asyncio.Runner() as runner:
        is_interrupted = False
        try:
            while (one := runner.run(cancelled_by_signals(next_one()))) is not None:
                yield one
                end_if_interrupted()
        except KeyboardInterrupt:
            is_interrupted = True
            raise
        finally:
            if not is_interrupted:  # else a step may be under way, or about to begin: the runner cancels it in its end
                runner.run(found.aclose())
