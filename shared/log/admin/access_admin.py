"""Puts the declared rights in force at Kafka, and asks which ones are.

aiokafka's admin client has the requests of ACLs, and no methods for them, so they are sent by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import ClusterAuthorizationFailedError, KafkaError, for_code
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

from fallow.shared.log.admin.access_rules import AccessDifferences, Pattern, Resource, Rule, access_differences
from fallow.shared.log.kafka.connection import client_options
from fallow.shared.log.kafka.producer import refused
from fallow.shared.log.kafka.words import words_of
from fallow.shared.log.port import LogRefused, LogUnavailable, Refusal
from fallow.shared.runtime.kafka_access import KafkaAccess

BOUND_S = 30.0
REQUEST_BOUND_MS = 10_000
SETTLE_LOOKS, SETTLE_S = 50, 0.1
DENY, ALLOW = 2, 3
ANY = 1
"""In a filter: whatever resource, pattern, operation or permission."""

SECURITY_DISABLED = 54
"""The answer of a broker without an authorizer. aiokafka has no name for it."""

NEEDS_SUPER_USER = "only a super user of the broker sees and changes them; FALLOW_KAFKA_USERNAME names none"

USER = "User:"


@dataclass(frozen=True, slots=True)
class AccessReport:
    """What still differs, and what was removed on the way there."""

    left: AccessDifferences
    removed: tuple[Rule, ...] = ()

    @property
    def is_as_declared(self) -> bool:
        """Whether the rules in force are the declared ones and nothing else reaches these topics and groups."""
        return not (self.left.missing or self.left.too_many or self.left.beside)


async def check_access(kafka: str | KafkaAccess, expected: frozenset[Rule]) -> AccessReport | None:
    """How the rights in force differ; None where the broker checks none. Raises LogUnavailable, LogRefused."""
    async with _admin(kafka) as admin:
        actual, there = await _in_force(admin), await admin.list_topics()
    return None if actual is None else AccessReport(access_differences(expected, actual, there))


async def put_access_in_force(kafka: str | KafkaAccess, expected: frozenset[Rule]) -> AccessReport | None:
    """Add the missing rules, remove the undeclared ones of principals that the file names; what then still differs.

    Other rules are left alone and reported. None where the broker checks no rights. Raises LogUnavailable, LogRefused.
    """
    async with _admin(kafka) as admin:
        actual, there = await _in_force(admin), await admin.list_topics()
        if actual is None:
            return None
        found = access_differences(expected, actual, there)
        for rule in found.missing:
            await _change(admin, CreateAclsRequest(*_fields(rule)))
        for rule in found.too_many:
            await _change(admin, DeleteAclsRequest(*_fields(rule)))
        return AccessReport(await _settled(admin, expected, there), found.too_many)


async def _settled(admin: AIOKafkaAdminClient, expected: frozenset[Rule], there: Collection[str]) -> AccessDifferences:
    """What differs once the broker has applied the changes: it reads them from its metadata log, a moment later."""
    for _ in range(SETTLE_LOOKS):
        left = access_differences(expected, await _in_force(admin) or (), there)
        if not left.missing and not left.too_many:
            break
        await asyncio.sleep(SETTLE_S)
    return left


def _fields(rule: Rule) -> tuple[int, str, int, str, str, int, int]:
    permission = ALLOW if rule.is_allowed else DENY
    return (rule.resource, rule.name, rule.pattern, f"{USER}{rule.principal}", rule.host, rule.operation, permission)


async def _in_force(admin: AIOKafkaAdminClient) -> list[Rule] | None:
    """Every rule on topics, groups and the cluster; None where the broker checks no rights."""
    request = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)  # null: whatever name
    answer = await admin._send_request(request)  # noqa: SLF001 - see above
    if answer.error_code == SECURITY_DISABLED:
        return None
    if answer.error_code:
        raise for_code(answer.error_code)(answer.error_message)
    return list(rules_of(answer.resources))


def rules_of(resources: Iterable[Any]) -> Iterable[Rule]:
    """The rules of an answer of Kafka: (resource, name, pattern, [(principal, host, operation, permission)])."""
    for resource, name, pattern, acls, *_tags in resources:
        if resource in tuple(Resource) and pattern in tuple(Pattern):
            for principal, host, operation, permission, *_more in acls:
                what = operation, Resource(resource), name, Pattern(pattern)
                yield Rule(principal.removeprefix(USER), *what, host, permission == ALLOW)


async def _change(admin: AIOKafkaAdminClient, request: CreateAclsRequest | DeleteAclsRequest) -> None:
    answer = await admin._send_request(request)  # noqa: SLF001 - see above
    results = answer.creation_responses if isinstance(request, CreateAclsRequest) else answer.filter_responses
    for code, message, *_ in results:
        if code:
            raise for_code(code)(message)


@asynccontextmanager
async def _admin(kafka: str | KafkaAccess) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**client_options(kafka), request_timeout_ms=REQUEST_BOUND_MS)
    try:
        async with asyncio.timeout(BOUND_S):
            await admin.start()
            yield admin
    except ClusterAuthorizationFailedError as error:
        text = f"rights at {kafka}: {NEEDS_SUPER_USER}"
        raise LogRefused(Refusal.NOT_ALLOWED, text) from error
    except (KafkaError, TimeoutError, OSError) as error:
        raise refused(f"rights at {kafka}", error) or LogUnavailable(f"rights at {kafka}: {words_of(error)}") from error
    finally:
        await admin.close()
