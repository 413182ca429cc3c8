"""A certificate for servers of this machine: it signs itself, and is good for two days."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.runtime.stack.ports import LOCAL

NAME = "localhost"
KEY_BITS, PUBLIC_EXPONENT = 2_048, 65_537
BEFORE, FOR = timedelta(hours=1), timedelta(days=2)
PRIVATE_MODE = 0o600


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM. `file` is what clients take for the authority, too; `store` holds the key and the certificate, as
    Kafka reads them.
    """

    file: Path
    key_file: Path
    store: Path


def make_certificate(folder: Path) -> Certificate:
    """A new one in this folder. The key has no password, and is its owner's alone."""
    key = generate_private_key(PUBLIC_EXPONENT, KEY_BITS)
    key_text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    text = _signed(key).public_bytes(Encoding.PEM)
    made = Certificate(folder / "ca.pem", folder / "key.pem", folder / "store.pem")
    for path, content in ((made.file, text), (made.key_file, key_text), (made.store, key_text + text)):
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_MODE), "wb") as output:
            output.write(content)
    return made


def _signed(key: RSAPrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    places = x509.SubjectAlternativeName([x509.DNSName(NAME), x509.IPAddress(ip_address(LOCAL))])
    now = datetime.fromtimestamp(wall_ms() / 1000, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEFORE)
        .not_valid_after(now + FOR)
        .add_extension(places, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, SHA256())
    )
