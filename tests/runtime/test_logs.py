"""A logged error tells where it came from, and nothing of the values that were at work."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pydantic import SecretStr

from fallow.services.projector.settings import ProjectorSettings
from fallow.shared.events.values import JobSpec, ProcessRun
from fallow.shared.runtime.addresses import without_password
from fallow.shared.runtime.logs import rendering
from fallow.shared.runtime.settings import LogFormat

PASSWORD, TOKEN = "hunter2-redis", "alices-token"


def work(settings: ProjectorSettings, spec: JobSpec, own: str) -> None:
    raise RuntimeError("it cannot go on\x1b[2J")


def logged(log_format: LogFormat) -> str:
    """The log line of an error that was raised beside secrets."""
    address, environment = f"redis://projector:{PASSWORD}@127.0.0.1:6379/0", {"WANDB_API_KEY": TOKEN}
    spec = JobSpec(id="a", tenant="alice", run=ProcessRun(argv=("x",), env=environment))
    try:
        work(ProjectorSettings(redis=SecretStr(address)), spec, address)
    except RuntimeError:
        rendered: Any = {"event": "failed, begins anew", "level": "error", "exc_info": sys.exc_info()}
    for step in rendering(log_format)[1:]:
        rendered = step(None, "error", rendered)
    return str(rendered)


@pytest.mark.parametrize("log_format", LogFormat)
def test_a_logged_error_shows_no_local_values(log_format: LogFormat) -> None:
    told = logged(log_format)
    assert "RuntimeError: it cannot go on" in told
    assert "in work" in told
    assert [secret for secret in (PASSWORD, TOKEN, "alice") if secret in told] == []


@pytest.mark.parametrize("log_format", LogFormat)
def test_no_terminal_obeys_the_text_of_an_error(log_format: LogFormat) -> None:
    assert "\x1b[2J" not in logged(log_format)


def test_settings_do_not_show_the_password_of_redis() -> None:
    settings = ProjectorSettings(redis=SecretStr(f"redis://projector:{PASSWORD}@127.0.0.1:6379/0"))
    assert PASSWORD not in f"{settings} {settings!r} {settings.model_dump()}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:1/0", "redis://host:1/0"),
        ("redis://user:secret@host:1/0", "redis://***@host:1/0"),
        ("redis://host:1/0?username=u&password=secret&db=1", "redis://host:1/0?username=u&password=***&db=1"),
        ("unix:///path?password=secret", "unix:///path?password=***"),
        ("user:secret@host:9092", "***@host:9092"),
        ("redis://host:1/0?password=sec@ret", "redis://***"),
        ("unix:///path?password=sec@ret&db=1", "unix://***"),
        ("redis://user:sec?ret@host:1", "redis://***"),
        ("user:sec?ret@host:1", "***"),
        ("user:sec//ret@host:1", "***@host:1"),
        ("SASL_SSL://user:sec//ret@host:1,other:2", "SASL_SSL://***@host:1,other:2"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown
