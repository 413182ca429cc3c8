"""Which nodes of a pool have which labels: by key and value, so that what a label rule costs goes by the values that it
names, not by the nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fallow.shared.cluster.capacity.constraints import parsed
from fallow.shared.cluster.capacity.masks import mask_from

_MASKS_OF_A_KEY_MAX = 1_024
"""So many values of one key at most are kept as masks, which are as wide as the pool; those of fewer nodes as lists."""

Alike = list[int] | int
"""The nodes with one value: their numbers, or, where these are many, a mask."""


class Labels:
    """The index over one pool's nodes, kept by delta."""

    __slots__ = ("_few", "_having", "_of", "_size")

    def __init__(self, of_each: Sequence[Mapping[str, str]]) -> None:
        """`of_each` are the labels of each node, in the order of the pool's numbers."""
        self._size = len(of_each)
        self._few = max(1, self._size // _MASKS_OF_A_KEY_MAX)
        self._having: dict[str, Alike] = {}
        """The nodes with each key, whatever its value."""
        self._of: dict[str, dict[str, Alike]] = {}
        """The nodes with each value of each key."""
        for number, labels in enumerate(of_each):
            self.change(number, {}, labels)

    def change(self, number: int, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        """A node has other labels than before."""
        for key, value in before.items():
            if now.get(key) != value:
                self._remove(self._of[key], value, number)
                if not self._of[key]:
                    del self._of[key]
                if key not in now:
                    self._remove(self._having, key, number)
        for key, value in now.items():
            if before.get(key) != value:
                self._add(self._of.setdefault(key, {}), value, number)
                if key not in before:
                    self._add(self._having, key, number)

    def keeping(self, rule: str) -> int:
        """The nodes that keep a rule, see `LabelRule`, as a mask."""
        key, values, is_not = parsed(rule)
        if values:
            of_key = self._of.get(key, {})
            found = self._mask([of_key[value] for value in values if value in of_key])
        else:
            found = self._mask([self._having[key]] if key in self._having else [])
        return ((1 << self._size) - 1) ^ found if is_not else found

    def _mask(self, found: Iterable[Alike]) -> int:
        mask, few = 0, list[int]()
        for alike in found:
            if isinstance(alike, int):
                mask |= alike
            else:
                few += alike
        return mask | mask_from(few, self._size) if few else mask

    def _add(self, table: dict[str, Alike], name: str, number: int) -> None:
        alike = table.get(name)
        if alike is None:
            table[name] = [number]
        elif isinstance(alike, int):
            table[name] = alike | 1 << number
        elif len(alike) < self._few:
            alike.append(number)
        else:
            table[name] = mask_from([*alike, number], self._size)

    def _remove(self, table: dict[str, Alike], name: str, number: int) -> None:
        alike = table[name]
        if isinstance(alike, int):
            alike = table[name] = alike ^ 1 << number
        else:
            alike.remove(number)
        if not alike:
            del table[name]
