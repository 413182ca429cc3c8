"""What every error of Redis means: none of them escapes as another exception than the port's."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from collections.abc import AsyncIterator

import pytest
import redis.exceptions
from hypothesis import example, given
from hypothesis import strategies as st

from fallow.shared.runtime.addresses import without_password
from fallow.shared.view.answers import NEEDS, NEEDS_BY_TEXT, PASSES
from fallow.shared.view.keys import keys_of
from fallow.shared.view.redis_view import ERRORS, RedisFunctions
from fallow.shared.view.store import ViewMisused, ViewNeedsChange, ViewUnavailable
from tests.hypothesis_profile import reaches

KINDS = [kind for _, kind in inspect.getmembers(redis.exceptions, inspect.isclass) if issubclass(kind, Exception)]
NEVER_RAISED = {redis.exceptions.ChildDeadlockedError, redis.exceptions.IncorrectPolicyType}
"""Both belong to parts of redis-py that are not used here: forked pools, and multi-database clients."""


@contextlib.asynccontextmanager
async def server_that_answers(answer: bytes) -> AsyncIterator[RedisFunctions]:
    """A server that agrees to the handshake and gives this answer to every function."""
    ends: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.append(writer)
        with contextlib.suppress(ConnectionError):
            while words := await reader.read(65_536):
                # Several commands may come at once: HELLO or CLIENT SETINFO before the first function.
                for command in words.split(b"*")[1:]:
                    is_function = b"FCALL" in command or b"FUNCTION" in command
                    writer.write(answer if is_function else b"+OK\r\n" if b"HELLO" not in command else b"%0\r\n")
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    functions = RedisFunctions(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0?socket_timeout=0.5")
    try:
        yield functions
    finally:
        await functions.stop()
        server.close()
        for end in ends:
            end.close()


async def outcome_of(answer: bytes) -> object:
    async with server_that_answers(answer) as functions:
        try:
            found: object = await functions.call("read_cursor", keys_of("n", "c"), ())
        except (ViewUnavailable, ViewMisused) as error:
            return error
        return found


def at_its_place(outcome: object) -> str:
    """What is told behind the server and its place."""
    told = re.fullmatch(r"Redis at redis://127\.0\.0\.1:\d+/0\?socket_timeout=\*\*\*: (.*)", str(outcome))
    assert told is not None
    return told[1]


async def silence_of(url: str) -> str:
    functions = RedisFunctions(url)
    with pytest.raises(ViewUnavailable) as raised:
        await functions.ask("PING")
    await functions.stop()
    return str(raised.value)


async def test_a_redis_that_is_not_there_is_told_by_its_place_without_its_password() -> None:
    told = {"redis://me:hunter22@127.0.0.1:1/0": "Connection refused", "unix:///nowhere?password=hunter22": "No such"}
    for url, why in told.items():
        assert (await silence_of(url)).startswith(f"no Redis at {without_password(url)}: {why}")
    assert (await silence_of("redis://nowhere.invalid:1/0")).startswith("no Redis at redis://nowhere.invalid:1/0: ")


async def test_what_is_silent_or_no_redis_is_told_in_words() -> None:
    async with server_that_answers(b"") as functions:
        with pytest.raises(ViewUnavailable, match=r"no Redis at \S+: no answer in time$"):
            await functions.ask("FUNCTION LIST")
    async with server_that_answers(b":5\r\n") as functions:
        with pytest.raises(ViewUnavailable, match=r"^no Redis at \S+: something else answers \S+ there$"):
            await functions.call("read_cursor", keys_of("n", "c"), ())


@pytest.mark.parametrize("code", sorted(PASSES))
async def test_an_answer_that_passes_is_waited_for(code: str) -> None:
    outcome = await outcome_of(f"-{code} some text\r\n".encode())
    assert type(outcome) is ViewUnavailable
    assert at_its_place(outcome) == f"{PASSES[code]} ({code} some text)"


@pytest.mark.parametrize("code", sorted(NEEDS))
async def test_an_answer_that_a_person_must_mend_says_what_is_needed(code: str) -> None:
    text = "3999 127.0.0.1:6381" if code in {"MOVED", "ASK"} else "some text"
    outcome = await outcome_of(f"-{code} {text}\r\n".encode())
    assert type(outcome) is ViewNeedsChange
    assert at_its_place(outcome) == f"{NEEDS[code]} ({code} {text})"


@pytest.mark.parametrize("text", sorted(NEEDS_BY_TEXT))
async def test_a_general_error_is_known_by_its_text(text: str) -> None:
    outcome = await outcome_of(f"-ERR the {text}\r\n".encode())
    assert type(outcome) is ViewNeedsChange
    assert NEEDS_BY_TEXT[text] in str(outcome)


async def test_what_our_own_functions_refuse_is_a_defect() -> None:
    assert type(await outcome_of(b"-FALLOW six keys (got 8)\r\n")) is ViewMisused
    assert type(await outcome_of(b"-ERR user_function:12: attempt to index a nil value\r\n")) is ViewMisused


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_error_of_the_client_is_caught(kind: type[Exception]) -> None:
    assert issubclass(kind, ERRORS) or kind in NEVER_RAISED


codes = st.sampled_from(["ERR", *PASSES, *NEEDS, "NOSCRIPT", "UNKILLABLE", "EXECABORT", "FAILOVER"])
texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
words = st.lists(texts, min_size=1, max_size=3).map(
    lambda found: f"*{len(found)}\r\n".encode() + b"".join(f"${len(text)}\r\n{text}\r\n".encode() for text in found)
)
answers = st.one_of(
    words,
    st.builds(lambda code, text: f"-{code} {text}\r\n".encode(), codes, texts),
    texts.map(lambda text: f"-{text}\r\n".encode()),
    texts.map(lambda text: f"+{text}\r\n".encode()),
    st.integers(-9, 9).map(lambda number: f":{number}\r\n".encode()),
    st.binary(min_size=1, max_size=12).map(lambda text: text + b"\r\n"),
    st.sampled_from([b"$-1\r\n", b"*0\r\n", b"$2\r\n\xff\xfe\r\n", b"*1\r\n$2\r\nOK\r\n", b"*1\r\n:5\r\n", b"_\r\n"]),
)


@given(answers)
@example(b"-MOVED\r\n")
@example(b"-ASK 1 nowhere\r\n")
@example(b"HTTP/1.1 400 Bad Request\r\n\r\n")
@example(b"-\r\n")
def test_no_answer_escapes_as_another_error(answer: bytes) -> None:
    outcome = asyncio.run(outcome_of(answer))
    reaches("a server answers with an error", isinstance(outcome, BaseException))
    reaches("a server answers with a value", not isinstance(outcome, BaseException))
    assert not isinstance(outcome, BaseException) or isinstance(outcome, ViewUnavailable | ViewMisused)
