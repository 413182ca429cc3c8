"""A logged error tells where it came from, and nothing of the values that were at work."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from fallow.services.projector.settings import ProjectorSettings
from fallow.shared.events.fields.values import JobSpec, ProcessRun
from fallow.shared.runtime.addresses import without_password
from fallow.shared.runtime.logs import rendering
from fallow.shared.runtime.settings import LogFormat
from tests.hypothesis_profile import reaches

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
        ("redis://host:1/0?username=u&password=secret&db=1", "redis://host:1/0?username=u&password=***"),
        ("unix:///path?password=secret", "unix:///path?password=***"),
        ("user:secret@host:9092", "***@host:9092"),
        ("redis://host:1/0?password=sec@ret", "redis://***"),
        ("unix:///path?password=sec@ret&db=1", "unix://***"),
        ("redis://user:sec?ret@host:1", "redis://***"),
        ("user:sec?ret@host:1", "***"),
        ("user:sec//ret@host:1", "***@host:1"),
        ("SASL_SSL://user:sec//ret@host:1,other:2", "SASL_SSL://***@host:1,other:2"),
        ("redis://host:1/0?password=sec&ret", "redis://host:1/0?password=***"),
        ("redis://host:1/0?db=1&username=u", "redis://host:1/0?db=1&username=u"),
        ("redis://host:1/0?db=1;password=secret", "redis://host:1/0?db=***"),
        ("redis://host:1/0?token=secret", "redis://host:1/0?token=***"),
        ("redis://host:1/0?secret", "redis://host:1/0?***"),
        ("redis://host:1/0#password=sec@ret", "redis://***"),
        ("redis://host:1/0%3Fpassword=secret", "redis://host:1/0***"),
        ("redis://user%3Asecret%40host:1", "redis://user***"),
        ("redis://user:secret", "redis://user:***"),
        ("[::1]:9092,[fe80::1%1]:9092, host:1", "[::1]:9092,[fe80::1%1]:9092, host:1"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


FORMS = [
    "redis://user:{}@host:1/0",
    "redis://:{}@host:1?db=1",
    "user:{}@host:1,other:2",
    "redis://user:{}@host:x/0?password={}&db=1",
    "redis://host:1/0?password={}",
    "redis://host:1/0?db=1&password={}&username=u",
    "redis://host:1/0?pwd={}",
    "redis://host:1/0;password={}",
    "redis://host:1/0#password={}",
    "redis://host:1/0&password={}",
    "redis://host:1/0 password={}",
    "redis://host:1/0%3Fpassword={}",
    "redis://host:1/0%3fpwd={}",
    "redis://host:1/0%3Fpassword%3D{}",
    "redis://host:1/0 pwd={}",
    "unix:///path?username=u&password={}",
]


@given(form=st.sampled_from(FORMS), password=st.text("XYZ0&;#/?@:=%, \t'", min_size=3, max_size=12))
def test_no_three_signs_of_a_password_are_shown_whatever_signs_it_has(form: str, password: str) -> None:
    reaches("a password with a sign at which a part of an address ends", not password.isalnum())
    shown = without_password(form.format(*[password] * form.count("{}")))
    kept = without_password(form.format(*["QQQ"] * form.count("{}")))
    parts = {password[at : at + 3] for at in range(len(password) - 2)}
    assert [part for part in parts if part in shown and part not in kept] == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "has_colours"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
)
def test_a_terminal_gets_colours_where_it_shows_them_and_its_user_wants_them(
    environment: dict[str, str], *, has_colours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Terminal())
    rendered: Any = {"event": "ready", "level": "info"}
    for step in rendering(LogFormat.CONSOLE)[1:]:
        rendered = step(None, "info", rendered)
    assert ("\x1b[" in rendered) is has_colours
