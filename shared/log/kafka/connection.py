"""How a client of a process that runs connects: what it needs of files may be away for a moment, as Kafka may."""

from __future__ import annotations

import ssl
from typing import Any

from fallow.shared.log.port import LogUnavailable
from fallow.shared.runtime.kafka_access import AccessError, KafkaAccess, access_to


def client_options(kafka: str | KafkaAccess) -> dict[str, Any]:
    """The arguments of an aiokafka client. Raises LogUnavailable where a file of certificates cannot be used.

    Settings were tested when the process began. Since then certificates may be replaced by new ones, one file after the
    other.
    """
    try:
        return access_to(kafka).client_options()
    except AccessError as error:
        raise LogUnavailable(str(error)) from error


def tls_of(access: KafkaAccess) -> ssl.SSLContext | None:
    """What a connection is encrypted with; None where it is not. Raises LogUnavailable as above."""
    try:
        return access.tls()
    except AccessError as error:
        raise LogUnavailable(str(error)) from error


def opening_bound_s(kafka: str | KafkaAccess, step_bound_s: float) -> float:
    """How long a client may take to open where each of its steps takes up to `step_bound_s`, so that the bound of the
    step ends the opening and not this sum.

    A connection takes the handshake of TCP or TLS and the question for versions; with SASL also that for mechanisms and
    the two messages of SCRAM. The first one may have to be tried at every address. Then there are one to the leader of
    a partition and one to any broker, for an idempotent producer. Each is asked for metadata or for a producer's
    number once.
    """
    access = access_to(kafka)
    connections = len(access.addresses.split(",")) + 2
    steps = 2 + (3 if access.protocol.has_password else 0)
    return step_bound_s * connections * (steps + 1)
