"""What no message shows wherever it stands: a private key, and the password of an address. It is told by what it looks
like, since whoever puts one in a wrong place puts it under any name.
"""

from __future__ import annotations

import re

MASK = "***"

_BASE64 = "[A-Za-z0-9+/_-]"
_SECRETS = (
    # With its kind in front, whole or cut off, also with a slip between the two.
    (re.compile(rf"(ed25519[^A-Za-z0-9]{{0,3}}private[^A-Za-z0-9]{{0,8}}){_BASE64}+=*", re.IGNORECASE), rf"\1{MASK}"),
    # 32 bytes as base64 that are not said to be a public key.
    (re.compile(rf"(?<!ed25519:)(?<!{_BASE64}){_BASE64}{{43}}=(?!=)"), MASK),
    (re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*", re.DOTALL), rf"\1{MASK}"),
    (re.compile(r"(://)[^\s/@'\"]*:[^\s@'\"]*@"), rf"\1{MASK}@"),
)


def without_secrets(text: str) -> str:
    """The text with a mask in place of each secret."""
    for secret, masked in _SECRETS:
        text = secret.sub(masked, text)
    return text
