"""The prompt of a one-shot run: the command line's words joined with stdin, and every way that can go wrong."""

import io
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from mudroom.cli.actions.read_prompt import MAX_STDIN_BYTES, read_prompt
from mudroom.errors import UsageError


@contextmanager
def piped(data: bytes, tmp_path: Path) -> Generator[IO[Any]]:
    path = tmp_path / "stdin"
    path.write_bytes(data)
    with path.open("rb") as stream:
        yield stream


def refuse(line: str) -> None:
    raise AssertionError(line)


def composed(given: str | None, data: bytes, tmp_path: Path) -> str:
    with piped(data, tmp_path) as stream:
        return read_prompt(given, stream, wait=False, warn=refuse)


def test_words_alone(tmp_path: Path) -> None:
    assert composed("do it", b"", tmp_path) == "do it"
    assert composed("do it", b" \n", tmp_path) == "do it"
    assert read_prompt("do it", None, wait=False, warn=refuse) == "do it"


def test_stdin_joins_in_a_block_of_its_own(tmp_path: Path) -> None:
    assert composed("review", b"a\nb\n", tmp_path) == "review\n\n<stdin>\na\nb\n</stdin>"


def test_stdin_alone_is_the_prompt_whatever_its_line_ends_and_mark(tmp_path: Path) -> None:
    assert composed(None, b"\xef\xbb\xbfa\r\nb\r\n", tmp_path) == "a\nb"
    assert composed(None, "总结所有文件".encode(), tmp_path) == "总结所有文件"


@pytest.mark.parametrize("given", ["", "  \n"])
def test_an_empty_prompt_is_refused_even_beside_stdin(given: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the prompt is empty"):
        composed(given, b"data", tmp_path)
    with pytest.raises(UsageError, match="the prompt is empty"):
        composed(None, b"\r\n", tmp_path)


def test_bytes_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"stdin is not UTF-8: byte 0xe9 at offset 3\. Convert"):
        composed("x", b"caf\xe9", tmp_path)
    with pytest.raises(UsageError, match="the prompt is not UTF-8"):
        composed("caf\udce9", b"", tmp_path)


def test_more_than_10_mb_is_refused_and_10_mb_are_not(tmp_path: Path) -> None:
    assert len(composed(None, b"x" * MAX_STDIN_BYTES, tmp_path)) == MAX_STDIN_BYTES
    with pytest.raises(UsageError, match="larger than 10 MB"):
        composed(None, b"x" * (MAX_STDIN_BYTES + 1), tmp_path)


def test_a_pipe_that_stays_silent_is_given_up_with_a_word() -> None:
    read, write = os.pipe()
    heard: list[str] = []
    with open(read, "rb") as stream, open(write, "wb"):
        assert read_prompt("go", stream, wait=False, warn=heard.append, timeout=0.05) == "go"
    assert len(heard) == 1 and "going on without it" in heard[0]


def test_a_stdin_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    heard: list[str] = []
    with (tmp_path / "out").open("wb") as stream:
        assert read_prompt("go", stream, wait=False, warn=heard.append) == "go"
    assert len(heard) == 1 and "cannot be read" in heard[0]


def test_a_terminal_is_not_read() -> None:
    class Terminal(io.BytesIO):
        def isatty(self) -> bool:
            return True

    assert read_prompt("go", Terminal(b"typed"), wait=False, warn=refuse) == "go"
