"""What FastStream logs goes the way of all other lines."""

from __future__ import annotations

import logging

from fallow.shared.log.sharing.faststream_recipe import library_logger


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("faststream", logging.WARNING, "", 0, text, None, None)


def test_the_library_writes_no_lines_of_its_own() -> None:
    logger = library_logger()
    assert (logger.handlers, logger.propagate) == ([], True)


def test_what_is_meant_so_is_no_warning() -> None:
    logger = library_logger()
    assert not logger.filter(record("Auto create topics is disabled. Make sure the topics exist."))
    assert logger.filter(record("the broker is away"))
