"""Addresses are judged before a library meets them: what passes here can be looked up, whatever comes of it."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.admission.settings import AdmissionSettings
from fallow.shared.runtime.addresses import is_host, is_kafka, is_redis, unusable_file
from fallow.shared.runtime.settings import ServiceSettings, SettingsError
from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.view.store import ViewUnavailable
from tests.hypothesis_profile import reaches

LONG = "a" * 64
BAD = ["a..b", ".x", "x..", ".", "..", LONG, f"x.{LONG}", f"{LONG}.x"]
GOOD = ["localhost", "x.", "127.0.0.1", "a-b.c_d", "a" * 63, f"{'a' * 63}.b"]


@pytest.mark.parametrize("host", BAD)
def test_a_host_that_nobody_can_be_called_is_refused_wherever_one_is_named(host: str) -> None:
    assert not is_kafka(f"{host}:9092")
    assert not is_kafka(f"127.0.0.1:9092,{host}:9092")
    for url in (f"redis://{host}:6379/0", f"rediss://u:p@{host}/0", f"valkey://{host}"):
        assert not is_redis(url)


@pytest.mark.parametrize("host", GOOD)
def test_one_that_somebody_may_be_called_is_taken(host: str) -> None:
    assert is_kafka(f"{host}:9092")
    assert is_redis(f"redis://{host}:6379/0")


def test_addresses_of_version_six_are_taken() -> None:
    assert is_kafka("[::1]:9092,[fe80::1%1]:9092")
    assert is_redis("redis://[::1]:6379/0")


@given(st.text(st.sampled_from("a.-1"), min_size=1, max_size=70) | st.text(max_size=20))
def test_what_is_taken_can_be_looked_up_and_nothing_but_the_network_says_no(host: str) -> None:
    is_taken = is_host(host) and "\0" not in host
    reaches("a name is taken", is_taken)
    reaches("a name is refused", not is_taken)
    if is_taken:
        with contextlib.suppress(OSError):
            socket.getaddrinfo(host, 1, flags=socket.AI_NUMERICHOST)


@pytest.mark.parametrize(("variable", "form"), [("FALLOW_KAFKA", "{}:9092"), ("FALLOW_REDIS", "redis://{}:6379/0")])
@pytest.mark.parametrize("host", BAD)
def test_a_service_with_such_a_setting_names_it(
    variable: str, form: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, form.format(host))
    for kind in (ServiceSettings, AdmissionSettings):
        with pytest.raises(SettingsError, match=f"{variable}: .*between the dots"):
            kind.load()


def test_a_file_of_certificates_that_cannot_be_used_is_named_with_its_option(tmp_path: Path) -> None:
    there, pipe = tmp_path / "there", tmp_path / "pipe"
    there.write_text("x")
    os.mkfifo(pipe)
    url = "rediss://127.0.0.1:1/0"
    assert unusable_file(url) is None
    assert unusable_file(f"{url}?ssl_ca_certs={there}") is None
    assert unusable_file(f"{url}?db=1&ssl_ca_certs=/nope") == "ssl_ca_certs = /nope: No such file or directory"
    assert (
        unusable_file(f"{url}?ssl_ca_certs={there}&ssl_keyfile={tmp_path}") == f"ssl_keyfile = {tmp_path}: is no file"
    )
    assert unusable_file(f"{url}?ssl_certfile={pipe}") == f"ssl_certfile = {pipe}: is no file"


async def test_a_view_behind_such_a_file_says_so() -> None:
    functions = RedisFunctions("rediss://127.0.0.1:1/0?ssl_ca_certs=/nope")
    with pytest.raises(ViewUnavailable, match="ssl_ca_certs = /nope: No such file or directory"):
        await functions.ask("PING")
    await functions.stop()
