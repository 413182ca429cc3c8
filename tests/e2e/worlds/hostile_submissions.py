"""One record of every hostile kind, each with a name of its own and the outcome that it must have."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fallow.shared.events.codec.encoding import SUBMISSION_BYTES_MAX
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.events.submissions import CancelJob, SubmitJob, UpdateJob

DAY_MS = 86_400_000
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Hostile:
    """A record for a topic of submissions; `outcome` is the code of a rejection or the reason of a dead letter. `of` is
    the tenant by which the answer names the job, None where the record names none that could be one.
    """

    case: str
    outcome: str
    value: bytes | None
    type_: str = SubmitJob.type
    more: Headers = ()
    tenant_topic: str | None = None
    of: str | None = "vision"

    @property
    def job(self) -> str:
        """What an answer calls the job."""
        return self.case if self.of is None else f"{self.of}/{self.case}"


def job(
    case: str,
    outcome: str,
    /,
    *,
    more: Headers = (),
    topic: str | None = None,
    of: str | None = "vision",
    **fields: Any,
) -> Hostile:
    """A submit of a job that is called like its case, with these fields."""
    spec = {"id": case, "tenant": of, "run": {"driver": "virtual", "duration_ms": 100}, **fields}
    return Hostile(case, outcome, json.dumps({"job": spec}).encode(), more=more, tenant_topic=topic, of=of)


def text(case: str, outcome: str, inner: str) -> Hostile:
    """A submit whose job is written down by hand; the name of the case stands before the rest."""
    return Hostile(case, outcome, f'{{"job":{{"id":"{case}","tenant":"vision",{inner}}}}}'.encode())


def bare(case: str, outcome: str, value: bytes | None, type_: str = SubmitJob.type, more: Headers = ()) -> Hostile:
    """Bytes that do not tell to which tenant they belong."""
    return Hostile(case, outcome, value, type_, more)


REJECTED = (
    job("zero-workers", "invalid_field", workers=0),
    job("minus-one-worker", "invalid_field", workers=-1),
    job("minus-eight-gpus", "invalid_field", resources={"gpu_milli": -8_000}),
    job("no-gpus", "invalid_field", resources={"gpu_milli": 0}),
    job("one-and-a-half-gpus", "invalid_field", resources={"gpu_milli": 1_500}),
    job("min-above-max", "invalid_field", workers=2, workers_min=3),
    job("words-for-numbers", "invalid_field", workers="2"),
    job("truth-for-numbers", "invalid_field", workers=True),
    job("float-for-integer", "invalid_field", workers=1.5),
    job("list-for-object", "invalid_field", resources=[]),
    job("beyond-doubles", "invalid_field", max_run_ms=2**53),
    job("beyond-64-bits", "invalid_field", priority=2**70),
    text("not-a-number", "invalid_field", '"priority":NaN'),
    text("infinite", "invalid_field", '"priority":1e999'),
    text("minus-zero-point", "invalid_field", '"workers":1.0'),
    job("unknown-field", "invalid_field", colour="red"),
    job("nested-unknown-field", "invalid_field", retry={"bugdet": 1}),
    text("twice", "invalid_field", '"priority":1,"priority":2'),
    job("unknown-driver", "invalid_field", run={"driver": "magic"}),
    job("new-line-in-tenant", "invalid_field", of=None, tenant="vision\n"),
    job("cyrillic-tenant", "invalid_field", of=None, tenant="vi\u0455ion"),
    Hostile("no-tenant", "invalid_field", b'{"job":{"id":"no-tenant"}}', of=None),
    job("stranger", "unknown_tenant", of="stranger"),
    job("no-such-pool", "unknown_pool", pools=["moon"]),
    job("no-such-gpu", "unknown_gpu_type", gpu_type="abacus"),
    job("no-such-queue", "unknown_queue", queue="fast"),
    job("no-such-cell", "unknown_cell", cell="north"),
    job("wide-worker", "larger_than_pool", resources={"gpu_milli": 16_000}),
    job("more-than-all", "larger_than_pool", workers=129, resources={"gpu_milli": 8_000}),
    job("too-many-workers", "over_job_limit", workers=10_001),
    job("other-mans-topic", "tenant_not_of_topic", topic="speech"),
    Hostile("common-topic", "tenant_not_of_topic", b'{"job":{"id":"common-topic","tenant":"speech"}}', of=None),
    Hostile(
        "cancel-by-common-topic",
        "tenant_not_of_topic",
        b'{"job":"speech/cancel-by-common-topic","tenant":"speech"}',
        CancelJob.type,
        of=None,
    ),
    Hostile("long-ago", "submit_time_too_far", b'{"job":{"id":"long-ago","tenant":"vision"},"submit_ms":%d}' % DAY_MS),
    Hostile(
        "in-a-far-future",
        "submit_time_too_far",
        b'{"job":{"id":"in-a-far-future","tenant":"vision"},"submit_ms":%d}' % (2**53 - 1),
    ),
    job("large", "too_large", labels="x" * SUBMISSION_BYTES_MAX),
    Hostile("id-of-another", "invalid_field", b'{"job":{"id":"speech/id-of-another","tenant":"vision"}}', of="speech"),
    Hostile(
        "cancel-of-another",
        "invalid_field",
        b'{"job":"speech/cancel-of-another","tenant":"vision"}',
        CancelJob.type,
        of="speech",
    ),
    job("behind-another", "invalid_field", after=[{"job": "speech/hello"}]),
    Hostile("newer", "unknown_version", b'{"job":{"id":"newer","tenant":"vision"}}', "fallow.job.submit.v2"),
    Hostile("cancel-of-less", "invalid_field", b'{"job":"cancel-of-less"}', CancelJob.type, of=None),
    Hostile(
        "update-to-nothing",
        "invalid_field",
        b'{"job":"update-to-nothing","tenant":"vision","changes":{}}',
        UpdateJob.type,
    ),
)

SET_ASIDE = (
    bare("empty", "unreadable", b""),
    bare("no-value", "unreadable", None),
    bare("not-json", "unreadable", b"hello"),
    bare("truncated", "unreadable", b'{"job":{"id":"truncated","tenant":"vis'),
    bare("utf-16", "unreadable", '{"job":{"id":"x"}}'.encode("utf-16")),
    bare("latin-1", "unreadable", b'{"job":{"id":"x","tenant":"vision","queue":"\xe9"}}'),
    bare("half-a-surrogate", "unreadable", b'{"job":{"id":"x","tenant":"\\ud800"}}'),
    bare("deep-lists", "unreadable", b"[" * 400_000),
    bare("deep-objects", "unreadable", b'{"job":' * 57_000),
    bare("deep-and-closed", "unreadable", b'{"job":{"id":"x","l":' + b"[" * 200_000 + b"]" * 200_000 + b"}}"),
    bare(
        "five-thousand-digits", "unreadable", b'{"job":{"id":"x","tenant":"vision","priority":' + b"9" * 5_000 + b"}}"
    ),
    bare("zeros", "unreadable", b"\x00" * 1_000),
    bare("null", "invalid", b"null"),
    bare("a-list", "invalid", b"[]"),
    bare("loud-id", "invalid", b'{"job":{"id":"LOUD","tenant":"vision"}}'),
    bare("no-id", "invalid", b'{"job":{"tenant":"vision"}}'),
    bare("endless-id", "invalid", b'{"job":{"id":"' + b"x" * 10_000 + b'","tenant":"vision"}}'),
    bare("nameless-giant", "too_large", b"x" * (SUBMISSION_BYTES_MAX + 1)),
    bare("no-type", "unknown_type", b"{}", type_=""),
    bare("no-command", "unknown_type", b"{}", type_=JobAdmitted.type),
    bare("endless-type", "unknown_type", b"{}", type_="x" * 20_000),
)

HARMLESS = (
    job("null-header", "admitted", more=(("odd", None),)),
    job("binary-header", "admitted", more=(("odd", b"\xff\xfe\x00"), ("odd", b"\x80"))),
    job("large-header", "admitted", more=(("odd", b"x" * 50_000),)),
    job("many-headers", "admitted", more=tuple((f"odd-{n}", b"x") for n in range(500))),
    job("content-type", "admitted", more=(("content-type", b"application/\xff"),)),
    job("own-topic", "admitted", of="speech", topic="speech"),
)
