"""What no message shows wherever it stands: a private key, and the password of an address. It is found by what it looks
like, since one in a wrong place may stand under any name.

Nothing is masked beyond a `"`: a line of JSON stays one. The time is linear in the text, whatever it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

MASK = "***"

_BASE64 = "[A-Za-z0-9+/_-]"
_SLIP = r'[^A-Za-z0-9"\\]'


def _behind_kind(found: re.Match[str]) -> str:
    return found[1] + MASK


_KEYS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    # Functions: for a template `re` imports a module, and while Python shuts down there is none to be had.
    # With its kind in front, whole or cut off, also with a slip between the two.
    (re.compile(rf"(ed25519{_SLIP}{{0,3}}private{_SLIP}{{0,8}}){_BASE64}+=*", re.IGNORECASE), _behind_kind),
    # 32 bytes as base64 that are not said to be a public key.
    (re.compile(rf"(?<!ed25519:)(?<!{_BASE64}){_BASE64}{{43}}=(?!=)"), lambda _: MASK),
)

_PEM = re.compile(r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----)")
_PEM_END = re.compile(r'[^"]*?-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----')
_PEM_LINES = re.compile(r"(?:(?:\s|\\[nr])*[A-Za-z0-9+/]{8,}={0,2})*")
"""Lines of a key whose end is cut off. Line ends may be written out, as in JSON."""

_WORD = re.compile(r'[^\s"]+')
_USER = re.compile(r"://[^/'@:]*:(?!\d{1,5}')")
"""Up to the colon behind a user, whose name may be empty; a port in quotes is no password."""
_BARE_USER = re.compile(r"[^@:]*:")
_PLACE = re.compile(r"@(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.%]+\]):\d{1,5}(?![A-Za-z0-9])")
"""A host with its port, behind a user without a scheme."""


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
    """What stands between the colon behind a user and the last `@` of the same word. A password with a space or a `"`
    in it is none that an address may have.
    """
    return _WORD.sub(_without_password, text) if "@" in text else text


def _without_password(found: re.Match[str]) -> str:
    word = found[0]
    at, user = word.rfind("@"), _USER.search(word)
    if "://" not in word and _PLACE.match(word, max(at, 0)):
        user = _BARE_USER.match(word)
    return word if user is None or at < user.end() else f"{word[: user.end()]}{MASK}{word[at:]}"
