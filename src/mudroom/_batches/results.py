"""Results of a batch: lines of the output, and the file that has them."""

from __future__ import annotations

import filecmp
import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from .._core.runs import Report

ResultFormat = Literal["native", "openai", "openai-responses"]
"""Formats of lines: the last two are those of OpenAI's batches, for its two kinds of answers."""

_REQUEST_PREFIX = "batch_req_"
_MAX_RUN = 100_000_000
"""Highest number of a run that is looked for in an output."""
_CHUNK_BYTES = 256 * 1024
"""Bytes of an output that are read at once."""
_BUCKETS = 256
"""Parts of the places of lines: sorting a small one takes little memory."""

_encoder = msgspec.json.Encoder(enc_hook=repr)


class ResultLine(Struct, frozen=True):
    """One line of the output.

    Arguments:
        custom_id: id of the line of the input.
        run: id of its run in the session of the batch.
        error: cause of the reason ERROR, "" for none.
    """

    custom_id: str
    reason: str
    text: str
    outputs: dict[str, Any]
    usd: float | None
    usage: dict[str, Any]
    turns: int
    seconds: float
    run: str
    error: str


def encode_result(line_id: str, report: Report[Any], kind: ResultFormat) -> bytes:
    """Return the line of a report, with its end of line."""
    if kind == "native":
        return _encoder.encode(_make_native(line_id, report)) + b"\n"
    return _encoder.encode(_make_openai(line_id, report, kind)) + b"\n"


def _make_native(line_id: str, report: Report[Any]) -> ResultLine:
    return ResultLine(
        custom_id=line_id,
        reason=report.reason.value,
        text=report.text,
        outputs=report.outputs,
        usd=report.usd,
        usage=asdict(report.usage),
        turns=report.turns,
        seconds=report.seconds,
        run=report.run_id,
        error=report.error,
    )


def _make_openai(line_id: str, report: Report[Any], kind: ResultFormat) -> dict[str, Any]:
    """Return a line like those of the output files of OpenAI's batches."""
    result: dict[str, Any] = {"id": f"{_REQUEST_PREFIX}{report.run_id}", "custom_id": line_id}
    if not report.ok:
        error = {"code": report.reason.value, "message": report.error or report.text}
        return {**result, "response": None, "error": error}
    text = _encoder.encode(report.outputs).decode() if report.outputs else report.text
    make_body = _make_response if kind == "openai-responses" else _make_completion
    body = make_body(text, report)
    response = {"status_code": 200, "request_id": report.run_id, "body": body}
    return {**result, "response": response, "error": None}


def _make_completion(text: str, report: Report[Any]) -> dict[str, Any]:
    usage = report.usage
    return {
        "id": f"run-{report.run_id}",
        "object": "chat.completion",
        "model": report.model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
        },
    }


def _make_response(text: str, report: Report[Any]) -> dict[str, Any]:
    usage = report.usage
    part = {"type": "output_text", "text": text, "annotations": list[Any]()}
    return {
        "id": f"resp_{report.run_id}",
        "object": "response",
        "model": report.model,
        "status": "completed",
        "output": [
            {
                "id": f"msg_{report.run_id}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        ],
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.total_tokens,
        },
    }


def get_new_path(path: Path) -> Path:
    """Return the path at which the lines of an output are before it is replaced."""
    return path.with_name(f".{path.name}.new")


class ResultFile:
    """The output of a batch: one line per finished line of the input.

    It is written first under another name; `publish` gives it its own. Afterwards each line is
    written with one call.

    Arguments:
        kept: bytes of the existing file that stay; further lines follow them at once. None writes
            a new file.
    """

    def __init__(self, path: Path, *, kept: int | None = None) -> None:
        self.path = path
        self._new = get_new_path(path)
        self._is_published = kept is not None
        if kept is None:
            self._file = open(self._new, "wb")  # noqa: SIM115  closed by `close`
            return
        if path.stat().st_size > kept:
            os.truncate(path, kept)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115

    def add(self, line: bytes) -> None:
        """Add a line. Raises OSError with the path; then the file has no part of the line."""
        written = 0
        try:
            while written < len(line):  # a disk that gets full takes a part without an error
                written += self._file.write(line[written:])
        except OSError as error:
            if self._is_published and written:
                self._file.truncate(self._file.tell() - written)
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def publish(self) -> None:
        """Replace the file with the lines so far; an equal file stays as it is. Raises OSError."""
        if self._is_published:
            return
        self._is_published = True
        self._close_file()
        if self.path.exists() and filecmp.cmp(self._new, self.path, shallow=False):
            self._new.unlink()
        else:
            os.replace(self._new, self.path)
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115

    def close(self) -> None:
        """Close the file; one without its own name is removed. Raises OSError."""
        try:
            self._close_file()
        finally:
            self._new.unlink(missing_ok=True)

    def _close_file(self) -> None:
        """Write what is left and close the file. Raises OSError with the path."""
        try:
            self._file.close()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def __enter__(self) -> ResultFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _LineRun(Struct):
    """The keys of a line that name its run: the first in the native format, else the second."""

    run: str = ""
    id: str = ""


class WrittenResults(Struct):
    """Results that an output has.

    Arguments:
        runs: for each number of a run 1 if the output has its result, else 0.
        count: number of its lines. size: their bytes; a torn last line is left out.
    """

    runs: bytearray
    count: int
    size: int

    def has(self, run: int) -> bool:
        """Return whether the result of a run is there."""
        return run < len(self.runs) and bool(self.runs[run])

    def add(self, runs: list[int]) -> bool:
        """Add lines. Return False if one of these runs cannot be there."""
        if not runs:
            return True
        if min(runs) < 1 or max(runs) > _MAX_RUN:
            return False
        self.runs.extend(bytes(max(0, max(runs) + 1 - len(self.runs))))
        for run in runs:
            self.runs[run] = 1
        self.count += len(runs)
        return True


def read_written(path: Path, kind: ResultFormat) -> WrittenResults | None:
    """Return the results of an output; None if it is damaged, or has another format."""
    written = WrittenResults(bytearray(), 0, 0)
    decode_lines = msgspec.json.Decoder(_LineRun).decode_lines
    try:
        with path.open("rb") as file:
            while text := file.read(_CHUNK_BYTES) + file.readline():
                whole = text[: text.rfind(b"\n") + 1]
                lines = decode_lines(whole)
                if len(lines) != whole.count(b"\n"):
                    return None
                written.size += len(whole)
                names = [line.run for line in lines]
                if kind != "native":
                    names = [line.id.removeprefix(_REQUEST_PREFIX) for line in lines]
                if not written.add(list(map(int, names))):
                    return None
    except (OSError, ValueError):
        return None
    has_each_once = written.runs.count(1) == written.count
    return written if has_each_once else None


class _LineId(Struct):
    custom_id: str


class _Places:
    """Places of lines in a file by the hashes of their ids, with 16 bytes for each line."""

    def __init__(self) -> None:
        self._buckets = [(array("q"), array("Q")) for _ in range(_BUCKETS)]

    def add(self, number: int, place: int) -> None:
        """Add the place of a line. `number`: hash of its id."""
        numbers, places = self._buckets[number % _BUCKETS]
        numbers.append(number)
        places.append(place)

    def sort(self) -> None:
        """Prepare for `find`, after the last line."""
        for at, (numbers, places) in enumerate(self._buckets):
            order = sorted(range(len(numbers)), key=numbers.__getitem__)
            self._buckets[at] = (
                array("q", map(numbers.__getitem__, order)),
                array("Q", map(places.__getitem__, order)),
            )

    def find(self, number: int) -> array[int]:
        """Return the places of the lines with a hash, ascending.

        Different ids can have equal hashes.
        """
        numbers, places = self._buckets[number % _BUCKETS]
        return places[bisect_left(numbers, number) : bisect_right(numbers, number)]


def sort_results(path: Path, ids: Iterator[str]) -> None:
    """Write the lines of an output in the order of these ids. The last line of an id counts."""
    places = _Places()
    decode = msgspec.json.Decoder(_LineId).decode
    new = get_new_path(path)
    try:
        with path.open("rb") as file, new.open("wb") as ordered:
            place = 0
            for line in file:
                places.add(hash(decode(line).custom_id), place)
                place += len(line)
            places.sort()
            for line_id in ids:
                for found_at in reversed(places.find(hash(line_id))):
                    file.seek(found_at)
                    line = file.readline()
                    if decode(line).custom_id == line_id:
                        ordered.write(line)
                        break
        os.replace(new, path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, error.filename or str(path)) from error
