"""The prompt of a one-shot run: words of the command line joined with stdin, and all errors."""

import io
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from mudroom._cli.actions.one_shot import MAX_STDIN_BYTES, read_prompt
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
