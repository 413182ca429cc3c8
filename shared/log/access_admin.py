"""Puts the declared rights in force at Kafka, and asks which ones are.

aiokafka's admin client has the requests of ACLs, and no methods for them, so they are sent by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

from shared.log.access_rules import ANY_HOST, AccessDifferences, Pattern, Resource, Rule, access_differences
from shared.log.kafka_producer import refused
from shared.log.port import LogUnavailable
from shared.runtime.kafka_access import KafkaAccess, access_to

BOUND_S = 30.0
REQUEST_BOUND_MS = 10_000
SETTLE_LOOKS, SETTLE_S = 50, 0.1
ALLOW = 3
ANY = 1
"""In a filter: whatever resource, pattern, operation or permission."""

SECURITY_DISABLED = 54
"""The answer of a broker without an authorizer. aiokafka has no name for it."""

USER = "User:"


async def check_access(kafka: str | KafkaAccess, expected: frozenset[Rule], namespace: str) -> AccessDifferences | None:
    """How the rights in force differ; None where the broker checks none. Raises LogUnavailable, LogRefused."""
    async with _admin(kafka) as admin:
        actual = await _in_force(admin)
    return None if actual is None else access_differences(expected, actual, namespace)


async def put_access_in_force(
    kafka: str | KafkaAccess, expected: frozenset[Rule], namespace: str
) -> AccessDifferences | None:
    """Add the missing rules, remove the undeclared ones of principals that the file names; what then still differs.

    Rules for other principals are left alone and reported. None where the broker checks no rights. Raises
    LogUnavailable, LogRefused.
    """
    async with _admin(kafka) as admin:
        actual = await _in_force(admin)
        if actual is None:
            return None
        found = access_differences(expected, actual, namespace)
        for rule in found.missing:
            await _change(admin, CreateAclsRequest(*_fields(rule)))
        for rule in found.too_many:
            await _change(admin, DeleteAclsRequest(*_fields(rule)))
        return await _settled(admin, expected, namespace)


async def _settled(admin: AIOKafkaAdminClient, expected: frozenset[Rule], namespace: str) -> AccessDifferences:
    """What differs once the broker has applied the changes: it reads them from its metadata log, a moment later."""
    for _ in range(SETTLE_LOOKS):
        left = access_differences(expected, await _in_force(admin) or (), namespace)
        if not left.missing and not left.too_many:
            break
        await asyncio.sleep(SETTLE_S)
    return left


def _fields(rule: Rule) -> tuple[int, str, int, str, str, int, int]:
    return (rule.resource, rule.name, rule.pattern, f"{USER}{rule.principal}", ANY_HOST, rule.operation, ALLOW)


async def _in_force(admin: AIOKafkaAdminClient) -> list[Rule] | None:
    """Every rule that allows a user something on topics and groups, from any host."""
    request = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)  # null: whatever name
    answer = await admin._send_request(request)  # noqa: SLF001 - see above
    if answer.error_code == SECURITY_DISABLED:
        return None
    if answer.error_code:
        raise for_code(answer.error_code)(answer.error_message)
    return list(_rules(answer.resources))


def _rules(resources: Iterable[Any]) -> Iterable[Rule]:
    for resource, name, pattern, acls, *_tags in resources:
        if resource not in tuple(Resource) or pattern not in tuple(Pattern):
            continue
        for principal, host, operation, permission, *_more in acls:
            if permission == ALLOW and host == ANY_HOST:
                yield Rule(principal.removeprefix(USER), operation, Resource(resource), name, Pattern(pattern))


async def _change(admin: AIOKafkaAdminClient, request: CreateAclsRequest | DeleteAclsRequest) -> None:
    answer = await admin._send_request(request)  # noqa: SLF001 - see above
    results = answer.creation_responses if isinstance(request, CreateAclsRequest) else answer.filter_responses
    for code, message, *_ in results:
        if code:
            raise for_code(code)(message)


@asynccontextmanager
async def _admin(kafka: str | KafkaAccess) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**access_to(kafka).client_options(), request_timeout_ms=REQUEST_BOUND_MS)
    try:
        async with asyncio.timeout(BOUND_S):
            await admin.start()
            yield admin
    except (KafkaError, TimeoutError, OSError) as error:
        raise refused(f"rights at {kafka}", error) or LogUnavailable(f"rights at {kafka}: {error!r}") from error
    finally:
        await admin.close()
