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
