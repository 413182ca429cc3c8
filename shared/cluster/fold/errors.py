"""The one exception of the fold: an effect that the state does not allow."""

from __future__ import annotations


class IllegalEffect(Exception):
    """An effect that cannot follow from the state. Its text says which rule it breaks.

    Only a defect of the writer can cause it, so a reader that meets it in an accepted record stops.
    """


def require(holds: bool, why: str) -> None:
    """Refuse the effect with this reason unless the rule holds."""
    if not holds:
        raise IllegalEffect(why)
