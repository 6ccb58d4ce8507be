"""The input of a batch: checked whole before the first run, then read line by line."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from ..errors import UsageError
from .line_formats import BatchLine, LineError, parse_line

_MAX_ERRORS = 10
"""Wrong lines that an error names."""
_BUCKETS = 256


class NumberSet:
    """A set of numbers of 64 bits that takes 8 bytes for each of them.

    Numbers are added first; `__contains__` works after `freeze`.
    """

    def __init__(self) -> None:
        self._buckets = [array("Q") for _ in range(_BUCKETS)]

    def add(self, number: int) -> None:
        """Add a number; it may be there already."""
        self._buckets[number & (_BUCKETS - 1)].append(number)

    def freeze(self) -> list[int]:
        """Sort the numbers, and return those that were added several times."""
        repeated: list[int] = []
        for place, bucket in enumerate(self._buckets):
            numbers = sorted(bucket)
            repeated += [first for first, second in pairwise(numbers) if first == second]
            self._buckets[place] = array("Q", numbers)
        return repeated

    def __contains__(self, number: int) -> bool:
        bucket = self._buckets[number & (_BUCKETS - 1)]
        place = bisect_left(bucket, number)
        return place < len(bucket) and bucket[place] == number

    def __len__(self) -> int:
        return sum(map(len, self._buckets))


class InputFacts(Struct):
    """Facts about a checked input.

    Arguments:
        total: number of tasks.
        keys: the keys of all tasks; see `BatchLine.compute_key`. Empty unless asked for.
        agents, models: names in the lines, each with the number of its first line.
        ignored: keys of OpenAI lines that are not used, with the numbers of their lines.
    """

    total: int
    keys: NumberSet
    agents: dict[str, int]
    models: dict[str, int]
    ignored: Counter[str]


class InputFile:
    """The input of a batch. `path`: a file with one line of JSON per task."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Iterator[BatchLine]:
        """Yield the tasks in their order. Raises UsageError for a file that changed meanwhile."""
        for number, text in self._read_texts():
            try:
                line = parse_line(number, text)
            except LineError as error:
                raise self._make_error([f"line {number}: {error}"]) from error
            yield line

    def check(self, *, with_keys: bool) -> InputFacts:
        """Read the whole input. Raises UsageError that names the wrong lines.

        Arguments:
            with_keys: compute the keys of the tasks, to compare them with a record.
        """
        facts = InputFacts(0, NumberSet(), {}, {}, Counter())
        ids = NumberSet()
        errors: list[str] = []
        for number, text in self._read_texts():
            try:
                line = parse_line(number, text)
            except LineError as error:
                errors.append(f"line {number}: {error}")
                if len(errors) > _MAX_ERRORS:
                    break
                continue
            ids.add(hash(line.id) & (2**64 - 1))
            _add_line(facts, line, with_keys=with_keys)
        if not errors and (repeated := ids.freeze()):
            errors = self._describe_repeated(set(repeated))
        if errors:
            raise self._make_error(errors)
        if not facts.total:
            raise UsageError(
                "the batch is empty", where=str(self.path), remedy="Write one line per task."
            )
        facts.keys.freeze()
        return facts

    def _read_texts(self) -> Iterator[tuple[int, bytes]]:
        with self.path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if text and not text.isspace():
                    yield number, text

    def _describe_repeated(self, hashes: set[int]) -> list[str]:
        """Return an error for each id that stands twice. Different ids may have equal hashes."""
        first: dict[str, int] = {}
        errors: list[str] = []
        for line in self.read():
            if hash(line.id) & (2**64 - 1) not in hashes:
                continue
            if line.id in first:
                errors.append(f"line {line.number}: line {first[line.id]} has the id {line.id!r}")
            first.setdefault(line.id, line.number)
        return errors

    def _make_error(self, errors: list[str]) -> UsageError:
        shown = errors[:_MAX_ERRORS]
        if len(errors) > _MAX_ERRORS:
            shown.append("and more")
        return UsageError(
            f"{self.path} has wrong lines:\n  " + "\n  ".join(shown) + "\n",
            remedy="Correct them, then run the batch again.",
        )


def _add_line(facts: InputFacts, line: BatchLine, *, with_keys: bool) -> None:
    facts.total += 1
    if with_keys:
        facts.keys.add(line.compute_key())
    if line.agent:
        facts.agents.setdefault(line.agent, line.number)
    if line.model:
        facts.models.setdefault(line.model, line.number)
    if line.ignored:
        facts.ignored.update(line.ignored)
