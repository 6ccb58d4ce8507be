"""A one-shot run: its prompt from words, stdin and image paths, and its end."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from mudroom._cli.actions.one_shot import MAX_STDIN_BYTES, read_prompt
from mudroom._cli.actions.prompts import list_image_paths
from mudroom._cli.output.report import explain_failure
from mudroom._cli.output.run_reporter import ExitCodeRule
from mudroom._core.budgets import Limit, LimitState
from mudroom._core.events import TurnFailed, WorkMerged
from mudroom._core.runs import Reason, Report
from mudroom.errors import UsageError


@contextmanager
def open_as_stdin(data: bytes, tmp_path: Path) -> Generator[IO[Any]]:
    path = tmp_path / "stdin"
    path.write_bytes(data)
    with path.open("rb") as stream:
        yield stream


def fail_on_warning(line: str) -> None:
    raise AssertionError(line)


def read(words: str | None, data: bytes, tmp_path: Path) -> str:
    with open_as_stdin(data, tmp_path) as stream:
        return read_prompt(words, stream, wait=False, warn=fail_on_warning)


def test_words_without_stdin(tmp_path: Path) -> None:
    assert read("do it", b"", tmp_path) == "do it"
    assert read("do it", b" \n", tmp_path) == "do it"
    assert read_prompt("do it", None, wait=False, warn=fail_on_warning) == "do it"


def test_stdin_is_added_in_a_block_of_its_own(tmp_path: Path) -> None:
    assert read("review", b"a\nb\n", tmp_path) == "review\n\n<stdin>\na\nb\n</stdin>"


def test_stdin_alone_is_the_prompt_without_byte_order_mark_and_carriage_returns(
    tmp_path: Path,
) -> None:
    assert read(None, b"\xef\xbb\xbfa\r\nb\r\n", tmp_path) == "a\nb"
    assert read(None, "总结所有文件".encode(), tmp_path) == "总结所有文件"


@pytest.mark.parametrize("words", ["", "  \n"])
def test_an_empty_prompt_is_refused_even_with_stdin(words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the prompt is empty"):
        read(words, b"data", tmp_path)
    with pytest.raises(UsageError, match="the prompt is empty"):
        read(None, b"\r\n", tmp_path)


def test_the_first_byte_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"stdin is not UTF-8: byte 0xe9 at offset 3\. Convert"):
        read("x", b"caf\xe9", tmp_path)
    with pytest.raises(UsageError, match="the prompt is not UTF-8"):
        read("caf\udce9", b"", tmp_path)


def test_more_than_10_mb_are_refused(tmp_path: Path) -> None:
    lines: list[str] = []
    with open_as_stdin(b"x" * MAX_STDIN_BYTES, tmp_path) as stream:
        prompt = read_prompt(None, stream, wait=False, warn=lines.append)
    assert len(prompt) == MAX_STDIN_BYTES
    assert len(lines) == 1 and lines[0].startswith("stdin has 10 MB, about 2,621,440 tokens")
    with pytest.raises(UsageError, match="larger than 10 MB"):
        read(None, b"x" * (MAX_STDIN_BYTES + 1), tmp_path)


def test_reading_of_a_silent_pipe_ends_with_a_warning() -> None:
    read, write = os.pipe()
    warnings: list[str] = []
    with open(read, "rb") as stream, open(write, "wb"):
        assert read_prompt("go", stream, wait=False, warn=warnings.append, timeout=0.05) == "go"
    assert len(warnings) == 1 and "continuing without it" in warnings[0]


def test_a_stdin_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    with (tmp_path / "out").open("wb") as stream:
        assert read_prompt("go", stream, wait=False, warn=warnings.append) == "go"
    assert len(warnings) == 1 and "cannot be read" in warnings[0]


def test_a_terminal_is_not_read() -> None:
    class Terminal(io.BytesIO):
        def isatty(self) -> bool:
            return True

    assert read_prompt("go", Terminal(b"typed"), wait=False, warn=fail_on_warning) == "go"


def make_report(reason: Reason, *, text: str = "so far", **fields: Any) -> Report:
    outputs = dict[str, Any]()
    return Report(outputs=outputs, text=text, run_id="1", reason=reason, turns=3, **fields)


@pytest.mark.parametrize("reason", Reason)
def test_only_the_reason_goal_exits_with_0(reason: Reason) -> None:
    assert ExitCodeRule().exit_code(make_report(reason), []) == (0 if reason is Reason.GOAL else 1)


def test_a_signal_decides_the_exit_code() -> None:
    assert ExitCodeRule().exit_code(make_report(Reason.CANCELLED), [2]) == 130
    assert ExitCodeRule().exit_code(make_report(Reason.GOAL), [15, 2]) == 143


def test_75_is_for_transient_failures_of_the_root_run() -> None:
    rule = ExitCodeRule()
    rule.apply(TurnFailed(at=0.0, run="1.1.1", error="overloaded", transient=True))
    assert rule.exit_code(make_report(Reason.ERROR), []) == 1, (
        "the parent handles failures of a child"
    )
    rule.apply(TurnFailed(at=0.0, run="1", error="overloaded", transient=True))
    assert rule.exit_code(make_report(Reason.ERROR), []) == 75
    assert rule.exit_code(make_report(Reason.GOAL), []) == 0
    rule.apply(TurnFailed(at=0.0, run="1", error="bad key"))
    assert rule.exit_code(make_report(Reason.ERROR), []) == 1


def test_failure_is_explained_in_one_line() -> None:
    assert explain_failure(make_report(Reason.GOAL)) == ""
    assert (
        explain_failure(make_report(Reason.ERROR, error="the provider said \x1b[31mno"))
        == "the provider said no"
    )
    assert (
        explain_failure(make_report(Reason.MAX_TURNS))
        == "the run reached its turn limit after 3 turns; its partial result is the answer"
    )
    assert explain_failure(make_report(Reason.LOOP, text="")).endswith("it gave no answer")


@pytest.mark.parametrize(
    ("reason", "state", "text"),
    [
        (
            Reason.MAX_TURNS,
            LimitState(Limit.TURNS, 2, 2),
            "reached its turn limit after 2 turns; its",
        ),
        (
            Reason.BUDGET,
            LimitState(Limit.TOTAL_TOKENS, 3000, 4501),
            "budget limit after 3 turns, 4,501 of 3,000 total tokens; its",
        ),
        (
            Reason.BUDGET,
            LimitState(Limit.USD, 0.005, 0.00706),
            "budget limit after 3 turns, $0.00706 of $0.005; its",
        ),
        (Reason.TIMEOUT, LimitState(Limit.SECONDS, 60, 60.25), "60.25 of 60 seconds; its"),
    ],
)
def test_the_failure_line_names_the_limit(reason: Reason, state: LimitState, text: str) -> None:
    assert text in explain_failure(make_report(reason, limit=state))


def test_work_that_did_not_land_has_an_exit_code_on_request() -> None:
    landed = WorkMerged(at=1, run="1", child="1.1.1", state="merged", files=("a",))
    conflict = WorkMerged(at=2, run="1.1.1", child="1.1.1.1.1", state="conflict")
    strict, plain = ExitCodeRule(strict_merges=True), ExitCodeRule()
    strict.apply(landed)
    assert strict.exit_code(make_report(Reason.GOAL), []) == 0
    for rule in (strict, plain):
        rule.apply_past(conflict)
    assert strict.exit_code(make_report(Reason.GOAL), []) == 3
    assert strict.exit_code(make_report(Reason.BUDGET), []) == 1
    assert plain.exit_code(make_report(Reason.GOAL), []) == 0


LONG_LINES = {
    "a word": "x",
    "Chinese without spaces": "一个很长的提示",
    "open quotes": '" ',
    "apostrophes": "' ",
    "quotes": '"',
    "backslashes": "\\",
    "points": ".png",
    "paths in quotes": "'a.png' ",
    "paths in open quotes": '"a.png ',
}


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("look at a.png and b.JPG", ["a.png", "b.JPG"]),
        ("\"my file.gif\" 'your file.webp'", ["my file.gif", "your file.webp"]),
        (r"my\ file.jpeg", ["my file.jpeg"]),
        ("it's in a.png", ["a.png"]),
        ('"a.png', ['"a.png']),
        ("看一下 图片.png", ["图片.png"]),
        ("a.png, a.pngx png .txt", []),
        ("x" * 5_000 + ".png", []),
    ],
)
def test_paths_are_words_of_the_line(line: str, paths: list[str]) -> None:
    assert list(list_image_paths(line)) == paths


@pytest.mark.parametrize("text", LONG_LINES.values(), ids=LONG_LINES)
def test_a_line_of_any_length_takes_linear_time(text: str) -> None:
    line = (text * 300_000)[:300_000]
    start = time.process_time()
    list(list_image_paths(line))
    assert time.process_time() - start < 5, "0.1 s is usual; quadratic time would be minutes"
