"""The input of a batch: checked whole before the first run, then read line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, islice
from operator import ge
from pathlib import Path

from msgspec import Struct

from ..errors import UsageError
from .line_formats import BatchLine, LineError, parse_line
from .number_set import NumberSet
from .quick_lines import QuickLines, parse_quickly

_MAX_ERRORS = 10
"""Wrong lines that an error names."""
_CHUNK_BYTES = 256 * 1024
"""Bytes that are read at once."""


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


class WrongLines(UsageError):
    """Lines of an input that cannot be run.

    Arguments:
        name: of the input.
        errors: numbers of lines and what is wrong; the first ones if there are many.
    """

    def __init__(self, name: str, errors: Sequence[tuple[int, str]]) -> None:
        self.errors = tuple(errors[:_MAX_ERRORS])
        shown = [f"line {number}: {error}" for number, error in self.errors]
        if len(errors) > _MAX_ERRORS:
            shown.append("and more")
        super().__init__(
            f"{name} has wrong lines:\n  " + "\n  ".join(shown) + "\n",
            remedy="Correct them, then run the batch again.",
        )


class InputFile:
    """The input of a batch.

    Arguments:
        path: a file with one line of JSON per task.
        parse: returns the task of a line, from its number and text. Raises LineError.
        name: of the input in errors, "" for the path.
    """

    def __init__(
        self,
        path: Path,
        parse: Callable[[int, bytes], BatchLine] = parse_line,
        *,
        name: str = "",
    ) -> None:
        self.path = path
        self.name = name or str(path)
        self._parse = parse

    def read(self) -> Iterator[BatchLine]:
        """Yield the tasks in their order. Raises UsageError for a file that changed meanwhile."""
        for number, text in self._read_texts():
            try:
                line = self._parse(number, text)
            except LineError as error:
                raise WrongLines(self.name, [(number, str(error))]) from error
            yield line

    def check(self, *, with_keys: bool) -> InputFacts:
        """Read the whole input. Raises UsageError that names the wrong lines.

        Arguments:
            with_keys: compute the keys of the tasks, to compare them with a record.
        """
        facts = InputFacts(0, NumberSet(), {}, {}, Counter())
        ids = IdCheck()
        errors: list[tuple[int, str]] = []
        for first, count, text in self._read_chunks():
            quick = parse_quickly(first, count, text) if self._parse is parse_line else None
            if quick is not None:
                found = quick.ids
                _add_quick(facts, first, quick, with_keys=with_keys)
            else:
                lines = self._parse_each(first, text, errors)
                found = [_add_line(facts, line, with_keys=with_keys) for line in lines]
            if len(errors) > _MAX_ERRORS:
                break
            if found and not ids.add(found):
                self._add_earlier(ids, first)
        if not errors and (repeated := ids.find_repeated()):
            errors = self._describe_repeated(repeated)
        if errors:
            raise WrongLines(self.name, errors)
        if not facts.total:
            raise UsageError(
                "the batch is empty", where=self.name, remedy="Write one line per task."
            )
        return facts

    def _add_earlier(self, ids: IdCheck, end: int) -> None:
        """Add the ids of the lines before line number `end`. Wrong lines are left out."""
        for first, count, text in self._read_chunks():
            if first >= end:
                return
            quick = parse_quickly(first, count, text) if self._parse is parse_line else None
            ids.add_earlier(
                quick.ids if quick else [x.id for x in self._parse_each(first, text, [])]
            )

    def _parse_each(
        self, first: int, text: bytes, errors: list[tuple[int, str]]
    ) -> Iterator[BatchLine]:
        """Yield the tasks of some lines, parsed one by one. Add to `errors` what is wrong."""
        for number, line in enumerate(text.split(b"\n"), first):
            if not line or line.isspace():
                continue
            try:
                yield self._parse(number, line)
            except LineError as error:
                errors.append((number, str(error)))
                if len(errors) > _MAX_ERRORS:
                    return

    def _read_texts(self) -> Iterator[tuple[int, bytes]]:
        with self.path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if text and not text.isspace():
                    yield number, text

    def _read_chunks(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield parts of the file: number of the first line, number of lines, and the lines.

        A part has _CHUNK_BYTES and the rest of its last line.
        """
        number = 1
        with self.path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                text = chunk + file.readline()
                if not text.endswith(b"\n"):
                    text += b"\n"
                count = text.count(b"\n")
                yield number, count, text
                number += count

    def _describe_repeated(self, hashes: set[int]) -> list[tuple[int, str]]:
        """Return an error for each id that stands twice. Different ids may have equal hashes."""
        first: dict[str, int] = {}
        errors: list[tuple[int, str]] = []
        for line in self.read():
            if hash(line.id) not in hashes:
                continue
            if line.id in first:
                errors.append((line.number, f"line {first[line.id]} has the id {line.id!r}"))
            first.setdefault(line.id, line.number)
        return errors


def _add_line(facts: InputFacts, line: BatchLine, *, with_keys: bool) -> str:
    """Add a task, and return its id."""
    facts.total += 1
    if with_keys:
        facts.keys.add(line.compute_key())
    if line.agent:
        facts.agents.setdefault(line.agent, line.number)
    if line.model:
        facts.models.setdefault(line.model, line.number)
    if line.ignored:
        facts.ignored.update(line.ignored)
    return line.id


def _add_quick(facts: InputFacts, first: int, lines: QuickLines, *, with_keys: bool) -> None:
    facts.total += len(lines.ids)
    if with_keys:
        facts.keys.add_all(lines.compute_keys())
    for names, known in ((lines.agents, facts.agents), (lines.models, facts.models)):
        for name in dict.fromkeys(names):
            if name and name not in known:
                known[name] = first + names.index(name)


class IdCheck:
    """The ids of an input, in the order of its lines.

    Ids that ascend, like numbers in a text, cannot repeat: nothing is kept of them. From the first
    ids on that do not, all ids are kept as hashes, those of the first lines, too.
    """

    def __init__(self) -> None:
        self._last = ""
        self._hashes: NumberSet | None = None

    def add(self, ids: Sequence[str]) -> bool:
        """Add the ids of the next lines. Return False if earlier ids are needed first.

        Call `add_earlier` then; these ids are added.
        """
        if self._hashes is None:
            if _ascend(self._last, ids):
                self._last = ids[-1]
                return True
            self._hashes = NumberSet("q")
            self._hashes.add_all(map(hash, ids))
            return not self._last
        self._hashes.add_all(map(hash, ids))
        return True

    def add_earlier(self, ids: Iterable[str]) -> None:
        """Add ids of lines before those for which `add` has returned False."""
        if self._hashes is not None:
            self._hashes.add_all(map(hash, ids))

    def find_repeated(self) -> set[int]:
        """Return the hashes of ids that may stand twice. Different ids can have equal hashes."""
        return self._hashes.find_repeated() if self._hashes else set()


def _ascend(last: str, ids: Sequence[str]) -> bool:
    """Return whether each id is longer than the one before it, or as long and greater."""
    lengths = list(map(len, ids))
    if not ids or lengths != sorted(lengths) or (lengths[0], ids[0]) <= (len(last), last):
        return False
    return all(lengths[place] < lengths[place + 1] for place in _find_descents(ids))


def _find_descents(ids: Sequence[str]) -> Iterator[int]:
    """Yield the places of ids that are not less than the next one, as texts."""
    return compress(range(len(ids) - 1), map(ge, ids, islice(ids, 1, None)))
