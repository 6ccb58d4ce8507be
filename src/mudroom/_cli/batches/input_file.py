"""The input of a batch: checked whole before the first run, then read line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from ...errors import UsageError
from .line_formats import BatchLine, LineError, parse_line

# Wrong lines that an error names.
_MAX_ERRORS = 10


class InputFacts(Struct):
    """Facts about a checked input.

    Arguments:
        total: number of tasks.
        keys: the keys of all tasks; see `BatchLine.compute_key`. Empty unless asked for.
        agents, models: names in the lines, each with the number of its first line.
        ignored: keys of OpenAI lines that are not used, with the numbers of their lines.
    """

    total: int
    keys: set[int]
    agents: dict[str, int]
    models: dict[str, int]
    ignored: Counter[str]

    def add(self, line: BatchLine, *, with_key: bool) -> None:
        self.total += 1
        if with_key:
            self.keys.add(line.compute_key())
        if line.agent:
            self.agents.setdefault(line.agent, line.number)
        if line.model:
            self.models.setdefault(line.model, line.number)
        if line.ignored:
            self.ignored.update(line.ignored)


class WrongLines(UsageError):
    """Lines of an input that cannot be run.

    Arguments:
        name: the input's name.
        errors: numbers of lines and their problems; the first ones if there are many.
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
        name: how errors name the input, "" for the path.
    """

    def __init__(self, path: Path, *, name: str = "") -> None:
        self.path = path
        self.name = name or str(path)

    def read(self) -> Iterator[BatchLine]:
        """Yield the tasks in order. Raises UsageError for a file that has changed meanwhile."""
        for number, text in self._read_texts():
            try:
                line = parse_line(number, text)
            except LineError as error:
                raise WrongLines(self.name, [(number, str(error))]) from error
            yield line

    def check(self, *, with_keys: bool) -> InputFacts:
        """Read the whole input. Raises UsageError, which names the wrong lines.

        Arguments:
            with_keys: compute the keys of the tasks, to compare them with a record.
        """
        facts = InputFacts(0, set(), {}, {}, Counter())
        ids: dict[str, int] = {}
        errors: list[tuple[int, str]] = []
        for number, text in self._read_texts():
            try:
                line = parse_line(number, text)
            except LineError as error:
                errors.append((number, str(error)))
            else:
                earlier = ids.setdefault(line.id, number)
                if earlier != number:
                    errors.append((number, f"line {earlier} has the id {line.id!r}"))
                facts.add(line, with_key=with_keys)
            # One more than is shown tells that there are more.
            if len(errors) > _MAX_ERRORS:
                break
        if errors:
            raise WrongLines(self.name, errors)
        if not facts.total:
            raise UsageError(
                "the batch is empty", where=self.name, remedy="Write one line per task."
            )
        return facts

    def _read_texts(self) -> Iterator[tuple[int, bytes]]:
        with self.path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if text and not text.isspace():
                    yield number, text
