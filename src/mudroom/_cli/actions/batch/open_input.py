"""The input of a batch: a file, or a copy of stdin."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ...._platform.scratch_dirs import ScratchDir
from ....errors import UsageError
from ...batches.input_file import InputFile

STDIN = "-"


def check_input(file: str) -> None:
    """Raise UsageError if the file cannot be the input of a batch."""
    if file == STDIN:
        return
    path = Path(file)
    if path.is_dir():
        raise UsageError("this is a folder", where=file, remedy="Name a file with one task a line.")
    if not path.exists():
        raise UsageError("no such file", where=file, remedy="Name a file with one task a line.")
    if not path.is_file():
        raise UsageError(
            "this is no file that can be read several times",
            where=file,
            remedy="Send the lines to stdin, and use - for the file.",
        )
    try:
        path.open("rb").close()
    except OSError as error:
        raise UsageError(
            f"the file cannot be read: {error.strerror}", where=file, remedy="Change its rights."
        ) from error


@contextmanager
def open_input(file: str) -> Generator[InputFile]:
    """Yield the input inside the `with` block."""
    if file != STDIN:
        yield InputFile(Path(file))
        return
    # The input is read several times, so stdin is copied first. Each process has a copy of its own:
    # a second one must not change the input of the first.
    with ScratchDir() as folder:
        path = Path(folder, "stdin.jsonl")
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield InputFile(path, name="stdin")
