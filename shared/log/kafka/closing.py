"""Opening and closing a Kafka client: it is whole, or nothing of it lives on."""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import Protocol

from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaError

from fallow.shared.log.kafka.words import words_of
from fallow.shared.log.port import LogUnavailable

STOP_BOUND_S = 3.0

logger = logging.getLogger(__name__)


class Client(Protocol):
    """A consumer or a producer of aiokafka."""

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """Close all connections."""


async def connect(client: Client) -> None:
    """Start a client. Where that is cancelled, `close` leaves none of its connections.

    aiokafka 0.14 holds its first connection in a variable of `AIOKafkaClient.bootstrap` alone, and forgets it where it
    is cancelled before a broker has told of the others.
    """
    try:
        await client.start()
    except BaseException as error:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            first = frame.f_locals.get("bootstrap_conn")
            if isinstance(first, AIOKafkaConnection):
                first.close()
        raise


async def start_or_close(client: Client, bound_s: float, where: str) -> None:
    """Connect a client within a bound. Raises LogUnavailable, with `where` before the reason.

    One that is half open is closed, also when the caller is cancelled: a consumer goes on as a member of its group, and
    what that group gave it would be read by nothing.
    """
    try:
        async with asyncio.timeout(bound_s):
            await connect(client)
    except BaseException as error:
        await close(client)
        if isinstance(error, KafkaError | TimeoutError | OSError | UnicodeError):  # of a name that no host can have
            raise LogUnavailable(f"{where}: {words_of(error)}") from error
        raise


async def close(client: Client) -> None:
    """Close a client within a bound; what it did not manage to tell the broker, time-outs will.

    aiokafka cancels tasks of its own while it closes, and their CancelledError can come out of `stop()` as if the
    caller had been cancelled: a task that swallowed its work that way would end without a word. So the close runs in a
    task of its own.
    """
    closing = asyncio.ensure_future(client.stop())
    done, _ = await asyncio.wait({closing}, timeout=STOP_BOUND_S)
    if not done:
        closing.cancel()
        logger.warning("%s does not close within %s s", type(client).__name__, STOP_BOUND_S)
    elif not closing.cancelled() and closing.exception() is not None:
        logger.warning("%s closes with an error: %r", type(client).__name__, closing.exception())
