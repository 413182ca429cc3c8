"""The names that a mistyped name may have meant, and what names there are."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

NAMED_MOST = 10


def near(word: str, known: Collection[str]) -> str | None:
    """The known name that is most like this word; None if none is much like it."""
    return next(iter(get_close_matches(word.lower(), list(known), 1)), None)


def meant(word: str, known: Collection[str]) -> str:
    """` (did you mean vision?)`, or nothing."""
    found = near(word, known)
    return "" if found is None else f" (did you mean {found}?)"


def there(known: Collection[str]) -> str:
    """`there is main`, `there are east, west`."""
    return f"there {'is' if len(known) == 1 else 'are'} {', '.join(known)}"


def listed(known: Collection[str]) -> str:
    """The names, as many as one reads: `a, b, c and 5 more`."""
    names = list(known)
    more = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
    return ", ".join(names[:NAMED_MOST]) + more
