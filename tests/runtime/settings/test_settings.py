from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fallow.shared.runtime.errors.endings import WRONG_SETTINGS
from fallow.shared.runtime.settings import LogFormat, ServiceSettings, SettingsError, WriterSecurity


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_NAMESPACE", "blue")
    monkeypatch.setenv("FALLOW_LOG_FORMAT", "console")
    settings = ServiceSettings.load()
    assert (settings.namespace, settings.log_format) == ("blue", LogFormat.CONSOLE)


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("FALLOW_HTTP_PORT", "99999", "must be at most 65535"),
        ("FALLOW_NAMESPACE", "Has Spaces", "must be 1 to 64 of a-z, 0-9"),
        ("FALLOW_CLOCK", "sundial", "must be 'wall' or 'stepped'"),
        ("FALLOW_REPLICAS", "0", "must be at least 1"),
        ("FALLOW_REPLICAS", "two", "must be a whole number"),
        ("FALLOW_CLOCK_ORIGIN_MS", "1_0", "must be a whole number of milliseconds"),
        ("FALLOW_CLOCK_SPEED", "1_0", "must be a number"),
        ("FALLOW_CLOCK_ORIGIN_MS", "24h", "must be a whole number of milliseconds"),
        ("FALLOW_EMBEDDED", "perhaps", "must be true or false"),
        ("FALLOW_CLOCK_SPEED", "0", "must be greater than 0"),
        ("FALLOW_LOG_LEVEL", "loud", "must be debug, info, warning or error"),
    ],
)
def test_a_wrong_value_is_refused_with_name_value_and_rule(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, rule: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as refused:
        ServiceSettings.load()
    assert f"{variable} = {value!r}: " in str(refused.value)
    assert rule in str(refused.value)


def test_a_wrong_address_is_named_but_not_shown_since_it_may_hold_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_REDIS", "http://user:secret@host")
    with pytest.raises(SettingsError) as refused:
        ServiceSettings.load()
    assert "FALLOW_REDIS: " in str(refused.value)
    assert "secret" not in str(refused.value)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        ServiceSettings().namespace = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("FALLOW_SECRETS_DIR", "/no/such/folder", "must be a folder that is there"),
        ("FALLOW_SECRETS_DIR", "/dev/null", "must be a folder that is there"),
        ("FALLOW_HTTP_HOST", "²", "cannot listen there at port 0: "),
        ("FALLOW_PORT_FILE", "/no/such/folder/port", "cannot be written: "),
    ],
)
def test_a_service_that_cannot_begin_by_its_settings_says_so_in_one_line(variable: str, value: str, rule: str) -> None:
    command = [sys.executable, "-m", "tests.runtime.process.tiny_service"]
    ended = subprocess.run(command, env={**os.environ, variable: value}, capture_output=True, text=True, check=False)
    assert ended.returncode == WRONG_SETTINGS
    first, line = ended.stderr.splitlines()
    assert first == "tiny: wrong settings"
    assert line.startswith(f"{variable} = {value!r}: {rule}")


def test_a_wrong_signing_key_is_named_but_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_SIGNING_KEY", "ed25519-private:c2VjcmV0")
    with pytest.raises(SettingsError) as refused:
        WriterSecurity.load()
    assert str(refused.value).startswith("FALLOW_SIGNING_KEY: ")
    assert "c2VjcmV0" not in str(refused.value)


def test_services_that_write_no_decisions_read_no_signing_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_SIGNING_KEY", "ed25519-private:c2VjcmV0")
    assert not hasattr(ServiceSettings.load(), "signing_key")
