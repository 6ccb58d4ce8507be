"""A batch's results: the output's lines, and the file that holds them."""

from __future__ import annotations

import filecmp
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from ..._core.runs import Report

# Line formats: mudroom's own, and that of OpenAI's batches.
ResultFormat = Literal["native", "openai"]

_encoder = msgspec.json.Encoder(enc_hook=repr)


def encode_result(line_id: str, report: Report[Any], kind: ResultFormat) -> bytes:
    make = _make_native if kind == "native" else _make_openai
    return _encoder.encode(make(line_id, report)) + b"\n"


def _make_native(line_id: str, report: Report[Any]) -> dict[str, Any]:
    return {
        "custom_id": line_id,
        "reason": report.reason.value,
        "text": report.text,
        "outputs": report.outputs,
        "usd": report.usd,
        "usage": asdict(report.usage),
        "turns": report.turns,
        "seconds": report.seconds,
        "run": report.run_id,
        "error": report.error,
    }


def _make_openai(line_id: str, report: Report[Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"id": f"batch_req_{report.run_id}", "custom_id": line_id}
    if not report.ok:
        error = {"code": report.reason.value, "message": report.error or report.text}
        return {**result, "response": None, "error": error}
    text = _encoder.encode(report.outputs).decode() if report.outputs else report.text
    body = _make_completion(text, report)
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


def get_new_path(path: Path) -> Path:
    # In the same folder, because a rename cannot cross file systems.
    return path.with_name(f".{path.name}.new")


class ResultFile:
    """A batch's output: one line per finished line of the input.

    Earlier results are first written under another name, until `publish` renames the file. From
    then on each line is written with a single call, so that readers see whole lines.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._new = get_new_path(path)
        self._is_published = False
        self._file = open(self._new, "wb")  # noqa: SIM115  closed by `close`

    def add(self, line: bytes) -> None:
        """Add a line. Raises OSError with the path, leaving no part of the line in the file."""
        written = 0
        try:
            while written < len(line):  # a disk filling up takes a part without an error
                written += self._file.write(line[written:])
        except OSError as error:
            if self._is_published and written:
                self._file.truncate(self._file.tell() - written)
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def publish(self, superseded: Counter[str]) -> None:
        """Replace the file with the lines so far; an equal file stays untouched. Raises OSError.

        `superseded` says how many of the first lines with an id to leave out.
        """
        self._close_file()
        if superseded.total():
            lines = self._list_kept(superseded)
            _rewrite(self._new, lines)
        if self.path.exists() and filecmp.cmp(self._new, self.path, shallow=False):
            self._new.unlink()
        else:
            os.replace(self._new, self.path)
        self._is_published = True
        # Unbuffered: each line reaches readers immediately.
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115

    def _list_kept(self, superseded: Counter[str]) -> Iterator[bytes]:
        left = Counter(superseded)
        with self._new.open("rb") as file:
            for line in file:
                line_id = _decode_id(line).custom_id
                if left[line_id] > 0:
                    left[line_id] -= 1
                else:
                    yield line

    def close(self) -> None:
        """Close the file, and remove it if it was not published. Raises OSError."""
        try:
            self._close_file()
        finally:
            self._new.unlink(missing_ok=True)

    def _close_file(self) -> None:
        """Flush and close the file. Raises OSError with the path."""
        try:
            self._file.close()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def __enter__(self) -> ResultFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _LineId(Struct):
    custom_id: str


_decode_id = msgspec.json.Decoder(_LineId).decode


def sort_results(path: Path, ids: Iterable[str]) -> None:
    """Sort an output's lines in the order of these ids. Raises OSError with the path."""
    with path.open("rb") as file:
        # Keep only the positions of lines in memory, not their text.
        places: dict[str, int] = {}
        place = 0
        for line in file:
            places[_decode_id(line).custom_id] = place
            place += len(line)

        def read_lines() -> Iterator[bytes]:
            for line_id in ids:
                if (found_at := places.get(line_id)) is not None:
                    file.seek(found_at)
                    yield file.readline()

        _rewrite(path, read_lines())


def _rewrite(path: Path, lines: Iterable[bytes]) -> None:
    """Replace a file with some of its lines. Raises OSError with the path."""
    new = get_new_path(path)
    try:
        with new.open("wb") as file:
            file.writelines(lines)
        os.replace(new, path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
