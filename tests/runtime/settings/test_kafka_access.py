"""Who comes into Kafka, and how: what the settings say of it, and what contradicts itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fallow.shared.runtime.kafka_access import AccessError, KafkaAccess, Mechanism, Protocol
from fallow.shared.runtime.settings import KafkaSecurity, ServiceSettings, SettingsError


def test_without_settings_a_client_connects_in_the_clear() -> None:
    assert ServiceSettings(kafka="k:1").kafka_access.client_options() == {
        "bootstrap_servers": "k:1",
        "security_protocol": "PLAINTEXT",
    }


def test_a_user_proves_itself_by_scram_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_KAFKA_SECURITY", "SASL_PLAINTEXT")
    monkeypatch.setenv("FALLOW_KAFKA_USERNAME", "placement")
    monkeypatch.setenv("FALLOW_KAFKA_PASSWORD", "s3cret")
    assert KafkaSecurity.load().access_at("k:1").client_options() == {
        "bootstrap_servers": "k:1",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "placement",
        "sasl_plain_password": "s3cret",
    }


def test_a_password_is_never_shown() -> None:
    access = KafkaAccess("k:1", Protocol.SASL_SSL, Mechanism.PLAIN, "placement", "s3cret")
    settings = ServiceSettings(kafka_security=Protocol.SASL_SSL, kafka_username="u", kafka_password="s3cret")  # type: ignore[arg-type]
    assert "s3cret" not in f"{access} {access!r} {settings} {settings!r}"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"SECURITY": "SASL_SSL"}, "FALLOW_KAFKA_USERNAME: is needed where kafka_security is SASL_SSL"),
        (
            {"SECURITY": "SASL_PLAINTEXT", "USERNAME": "u"},
            "FALLOW_KAFKA_PASSWORD: is needed where kafka_security is SASL_PLAINTEXT",
        ),
        (
            {"PASSWORD": "s3cret"},
            "FALLOW_KAFKA_PASSWORD: is of no use where kafka_security is PLAINTEXT: no SASL there",
        ),
        ({"USERNAME": "u"}, "FALLOW_KAFKA_USERNAME: is of no use where kafka_security is PLAINTEXT: no SASL there"),
        (
            {"CERT_FILE": "c.pem"},
            "FALLOW_KAFKA_CERT_FILE: is of no use where kafka_security is PLAINTEXT: no TLS there",
        ),
        ({"KEY_FILE": "k.pem"}, "FALLOW_KAFKA_KEY_FILE: is of no use where kafka_security is PLAINTEXT: no TLS there"),
        ({"CA_FILE": "ca.pem"}, "FALLOW_KAFKA_CA_FILE: is of no use where kafka_security is PLAINTEXT: no TLS there"),
        ({"SECURITY": "SSL", "KEY_FILE": "key.pem"}, "FALLOW_KAFKA_CERT_FILE: goes together with kafka_key_file"),
        ({"SECURITY": "SSL", "CA_FILE": "/no/ca.pem"}, "FALLOW_KAFKA_CA_FILE: /no/ca.pem holds no certificates: "),
        ({"SECURITY": "SSL", "CA_FILE": "/dev/null"}, "FALLOW_KAFKA_CA_FILE: /dev/null is no file"),
        ({"SECURITY": "SSL", "CA_FILE": "/proc/self"}, "FALLOW_KAFKA_CA_FILE: /proc/self is no file"),
        ({"SECURITY": "KERBEROS"}, "FALLOW_KAFKA_SECURITY = 'KERBEROS': "),
        ({"MECHANISM": "MD5"}, "FALLOW_KAFKA_MECHANISM = 'MD5': "),
    ],
)
def test_settings_that_no_connection_can_be_made_with_are_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], line: str
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"FALLOW_KAFKA_{name}", value)
    with pytest.raises(SettingsError) as refused:
        KafkaSecurity.load()
    (said,) = str(refused.value).splitlines()
    assert said.startswith(line)
    assert "s3cret" not in said


def test_a_certificate_that_is_none_is_named_with_its_key(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_text("no certificate")
    key.write_text("no key")
    with pytest.raises(AccessError, match=f"kafka_cert_file: {certificate}, {key}: "):
        KafkaAccess("k:1", Protocol.SSL, cert_file=certificate, key_file=key).tls()


def test_a_key_that_asks_for_a_password_is_refused_and_nobody_is_asked(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-subj", "/CN=localhost", "-passout", "pass:s3cret"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    with pytest.raises(AccessError, match=f"kafka_key_file: {key} asks for a password: it must be a key without one"):
        KafkaAccess("k:1", Protocol.SSL, cert_file=certificate, key_file=key).tls()


def test_a_pipe_in_place_of_a_certificate_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "ca.pem"
    os.mkfifo(pipe)
    with pytest.raises(AccessError, match=f"kafka_ca_file: {pipe} is no file"):
        KafkaAccess("k:1", Protocol.SSL, ca_file=pipe).tls()


def test_an_empty_setting_of_a_file_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_KAFKA_CA_FILE", "")
    assert KafkaSecurity.load().kafka_ca_file is None
