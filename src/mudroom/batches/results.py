"""Results of a batch: lines of the output, and the file that has them."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from .._core.runs import Report

ResultFormat = Literal["native", "openai"]

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
    value = _make_native(line_id, report) if kind == "native" else _make_openai(line_id, report)
    return _encoder.encode(value) + b"\n"


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


def _make_openai(line_id: str, report: Report[Any]) -> dict[str, Any]:
    """Return a line like those of the output files of OpenAI's batches."""
    result: dict[str, Any] = {"id": f"batch_req_{report.run_id}", "custom_id": line_id}
    if not report.ok:
        error = {"code": report.reason.value, "message": report.error or report.text}
        return {**result, "response": None, "error": error}
    text = _encoder.encode(report.outputs).decode() if report.outputs else report.text
    usage = report.usage
    body = {
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
    response = {"status_code": 200, "request_id": report.run_id, "body": body}
    return {**result, "response": response, "error": None}


class ResultFile:
    """The output of a batch: one line per finished line of the input.

    It is written first under another name; `publish` gives it its own. Afterwards each line is
    written with one call.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._new = path.with_name(f".{path.name}.new")
        self._file = open(self._new, "wb")  # noqa: SIM115  closed by `close`

    def add(self, line: bytes) -> None:
        """Add a line."""
        self._file.write(line)

    def publish(self) -> None:
        """Replace the file with the lines so far; an equal file stays as it is."""
        self._file.close()
        if self.path.exists() and filecmp.cmp(self._new, self.path, shallow=False):
            self._new.unlink()
        else:
            os.replace(self._new, self.path)
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115

    def close(self) -> None:
        """Close the file; one without its own name is removed."""
        self._file.close()
        self._new.unlink(missing_ok=True)

    def __enter__(self) -> ResultFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _LineId(Struct):
    custom_id: str


def sort_results(path: Path, ids: Iterator[str]) -> None:
    """Write the lines of an output again, in the order of these ids."""
    places: dict[str, int] = {}
    decoder = msgspec.json.Decoder(_LineId)
    new = path.with_name(f".{path.name}.new")
    with path.open("rb") as file, new.open("wb") as ordered:
        place = 0
        for line in file:
            places[decoder.decode(line).custom_id] = place
            place += len(line)
        for line_id in ids:
            if (found_at := places.get(line_id)) is not None:
                file.seek(found_at)
                ordered.write(file.readline())
    os.replace(new, path)
