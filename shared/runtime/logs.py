"""Logs: one line of JSON for each event, or coloured text for people, both on standard output.

The logger of a service carries its name and instance. What a library logs goes the same way.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from fallow.shared.runtime.files.signs import visible
from fallow.shared.runtime.settings import LogFormat
from fallow.shared.unshown import without_secrets

# What these libraries call information or a warning is the daily business of a service that waits for its dependencies,
# and to which any client may say anything: uvicorn warns of each request that is none.
QUIET = {
    "uvicorn": logging.ERROR,
    "aiokafka": logging.ERROR,
    "faststream": logging.WARNING,
    "asyncio": logging.WARNING,
}

SELDOM_S = 30.0
KINDS_MAX = 1_000


class Seldom(logging.Filter):
    """Lets each kind of message through once in a while: Kafka's client says several times a second that its broker is
    away.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said_s: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this kind (the text without its values) was not said for a while."""
        kind, now_s = (record.name, str(record.msg)), time.monotonic()
        if now_s - self._said_s.get(kind, -SELDOM_S) < SELDOM_S:
            return False
        if len(self._said_s) >= KINDS_MAX:  # a library may put values into its texts
            self._said_s.clear()
        self._said_s[kind] = now_s
        return True


SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
)


def set_up_logs(log_format: LogFormat, level: str, **bound: Any) -> FilteringBoundLogger:
    """Sets up logging for the whole process and returns its logger, with `bound` in every line."""
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=SHARED, processors=rendering(log_format))
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    for name, quiet in QUIET.items():
        logging.getLogger(name).setLevel(max(number, quiet))
    handler.addFilter(_seldom_from_libraries())
    return cast("FilteringBoundLogger", structlog.get_logger(**bound))


def _seldom_from_libraries() -> Callable[[logging.LogRecord], bool]:
    seldom = Seldom()
    return lambda record: not record.name.startswith(tuple(QUIET)) or seldom.filter(record)


def rendering(log_format: LogFormat) -> list[Processor]:
    """The last steps of a log line: exceptions and the text itself."""
    drop_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if log_format is LogFormat.JSON:
        return [drop_meta, structlog.processors.format_exc_info, structlog.processors.JSONRenderer(), _masked]
    # By itself the renderer would show all local values of each call: addresses with passwords, environments of jobs.
    plain = structlog.dev.ConsoleRenderer(
        colors=_has_colours(), pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
    )
    return [drop_meta, structlog.processors.format_exc_info, _in_one_line, plain, _masked]


def _has_colours() -> bool:
    """Whether standard output is a terminal that shows them, and whose user wants them (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _masked(_: Any, __: str, line: Any) -> str:
    """The line without the secrets that came into it with a foreign text."""
    return without_secrets(line)


def _in_one_line(_: Any, __: str, event: EventDict) -> EventDict:
    """Texts of tenants and nodes begin no line of their own, and no terminal obeys them. JSON writes such signs out."""
    texts = {key: value for key, value in event.items() if isinstance(value, str)}
    return {**event, **{key: _lines(text) if key in _TRACES else visible(text) for key, text in texts.items()}}


def _lines(trace: str) -> str:
    return "\n".join(map(visible, trace.split("\n")))


_TRACES = ("exception", "stack")
"""What the interpreter wrote in lines of its own."""
