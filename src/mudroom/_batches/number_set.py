"""Sets of numbers of 64 bits that take 8 bytes for each number."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

_BUCKETS = 256
"""Numbers with equal last bits share a bucket: each is so small that a Python set of its numbers
takes little memory, and many operations work in C."""


class NumberSet:
    """A set of numbers. A number that is added twice takes the memory of two.

    Arguments:
        typecode: "q" for numbers with a sign, "Q" for those without.
    """

    def __init__(self, typecode: Literal["q", "Q"] = "Q") -> None:
        self._typecode: Literal["q", "Q"] = typecode
        self._buckets = [array(typecode) for _ in range(_BUCKETS)]
        self._is_sorted = True

    def add(self, number: int) -> None:
        """Add a number; it may be there already."""
        self._buckets[number & (_BUCKETS - 1)].append(number)
        self._is_sorted = False

    def add_all(self, numbers: Iterable[int]) -> None:
        """Add numbers."""
        appends = [bucket.append for bucket in self._buckets]
        for number in numbers:
            appends[number & (_BUCKETS - 1)](number)
        self._is_sorted = False

    def find_repeated(self) -> set[int]:
        """Return the numbers that were added several times."""
        repeated: set[int] = set()
        for bucket in self._buckets:
            if len(set(bucket)) < len(bucket):
                repeated.update(a for a, b in pairwise(sorted(bucket)) if a == b)
        return repeated

    def includes(self, other: NumberSet) -> bool:
        """Return whether this set has all numbers of another one."""
        pairs = zip(self._buckets, other._buckets, strict=True)
        return all(set(own).issuperset(others) for own, others in pairs)

    def list_numbers(self) -> array[int]:
        """Return all numbers, in no special order."""
        numbers = array(self._typecode)
        for bucket in self._buckets:
            numbers.extend(bucket)
        return numbers

    def __contains__(self, number: int) -> bool:
        if not self._is_sorted:
            self._sort()
        bucket = self._buckets[number & (_BUCKETS - 1)]
        place = bisect_left(bucket, number)
        return place < len(bucket) and bucket[place] == number

    def _sort(self) -> None:
        self._buckets = [array(self._typecode, sorted(bucket)) for bucket in self._buckets]
        self._is_sorted = True

    def __len__(self) -> int:
        return sum(map(len, self._buckets))
