"""What no message shows wherever it stands: a private key, and the password of an address. It is told by what it looks
like, since whoever puts one in a wrong place puts it under any name.

Nothing is masked beyond a `"`: a line of JSON stays one. The time is linear in the text, whatever it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MASK = "***"

_BASE64 = "[A-Za-z0-9+/_-]"
_SLIP = r'[^A-Za-z0-9"\\]'
_KEYS = (
    # With its kind in front, whole or cut off, also with a slip between the two.
    (re.compile(rf"(ed25519{_SLIP}{{0,3}}private{_SLIP}{{0,8}}){_BASE64}+=*", re.IGNORECASE), rf"\1{MASK}"),
    # 32 bytes as base64 that are not said to be a public key.
    (re.compile(rf"(?<!ed25519:)(?<!{_BASE64}){_BASE64}{{43}}=(?!=)"), MASK),
)

_PEM = re.compile(r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----)")
_PEM_END = re.compile(r'[^"]*?-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----')
_PEM_LINES = re.compile(r"(?:(?:\s|\\[nr])*[A-Za-z0-9+/]{8,}={0,2})*")
"""Lines of a key whose end is cut off. Line ends may be written out, as in JSON."""

_WORD = re.compile(r'[^\s"]*')
_QUOTED_PORT = re.compile(r"\d{1,5}['`]")
_IN_A_USER = re.compile(r"[^/'@:]*:")


def without_secrets(text: str) -> str:
    """The text with a mask in place of each secret."""
    for secret, masked in _KEYS:
        text = secret.sub(masked, text)
    return _without_passwords(_without_pem(text))


def _without_pem(text: str) -> str:
    before, *rest = _PEM.split(text)
    return before + "".join(_masked_bodies(rest))


def _masked_bodies(rest: list[str]) -> Iterator[str]:
    """Headers of keys, each with the text behind it up to the next one."""
    for header, body in zip(rest[::2], rest[1::2], strict=True):
        found = _PEM_END.match(body) or _PEM_LINES.match(body)
        assert found is not None, "none or more lines"
        yield f"{header}{MASK}{body[found.end() :]}"


def _without_passwords(text: str) -> str:
    """What stands between the colon behind a user, who may have no name, and the last `@` of the same word. A password
    with a space or a `"` in it is none that an address may have.
    """
    before, *rest = text.split("://")
    return "://".join([before, *map(_without_password, rest)])


def _without_password(rest: str) -> str:
    word = _WORD.match(rest)
    user = _IN_A_USER.match(rest)
    at = rest.rfind("@", 0, word.end() if word is not None else 0)
    if user is None or at < user.end() or _QUOTED_PORT.match(rest, user.end()):
        return rest
    return f"{rest[: user.end()]}{MASK}{rest[at:]}"
