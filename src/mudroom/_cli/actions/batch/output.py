"""The output of a batch: its path, and the session that writes it.

The output identifies the batch: other spellings of its path, and links to it, mean the same one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from ...._core.ports import SessionStore
from ....errors import UnknownName, UsageError
from .open_input import STDIN


def choose_output(file: str, out: str) -> str:
    """Choose the output's path, as the command line spells it. Raises UsageError."""
    if out:
        return out
    if file == STDIN:
        raise UsageError("a batch from stdin needs a place for its output", remedy="Add --out.")
    path = Path(file).absolute()
    return str(path.with_name(f"{path.stem}.results.jsonl"))


def check_output(out: str) -> None:
    """Raise UsageError if this cannot be the output of a batch."""
    remedy = "Name a file for the results with --out."
    if out == STDIN:
        raise UsageError("results go to a file, not to stdout", where=out, remedy=remedy)
    if out.endswith(os.sep) or os.path.isdir(out):
        raise UsageError("this is a folder", where=out, remedy=remedy)
    # The results replace the file as a whole, which would destroy a device or a pipe.
    if os.path.exists(out) and not os.path.isfile(out):
        raise UsageError(
            "this cannot hold results: it is no regular file", where=out, remedy=remedy
        )
    folder = resolve_output(out).parent
    if not folder.is_dir():
        raise UsageError("no such directory", where=str(folder), remedy="Create it.")


def resolve_output(out: str) -> Path:
    return Path(os.path.realpath(out))


def name_session(output: Path) -> str:
    """Name the session of a batch by its output, an absolute path."""
    # The hash tells outputs of the same name apart; the stem is for people who list sessions.
    stem = "".join(each if each.isalnum() or each in "-_." else "-" for each in output.name)[:40]
    return f"batch-{stem}-{sha256(str(output).encode()).hexdigest()[:8]}"


async def find_session(store: SessionStore, out: str) -> str:
    """Return the session of the batch with this output, or "" if there is none."""
    with suppress(UnknownName):
        return await store.find(name_session(resolve_output(out)))
    return ""
