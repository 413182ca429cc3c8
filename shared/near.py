"""The names that a mistyped name may have meant, and what names there are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

NAMED_MAX = 10


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
    return first_named(list(known), NAMED_MAX)


def first_named(names: Sequence[str], most: int, unnamed: int = 0) -> str:
    """The first names and how many more there are, with the `unnamed` ones: `a, b, c and 2 more`."""
    more = max(0, len(names) - most) + unnamed
    first = ", ".join(names[:most])
    return f"{first} and {more:,} more" if more > 0 else first
