"""Files through which other processes read the status of a batch and change it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from .._core.json_values import get_decoder
from .._platform.private_files import make_private_folder
from .status import BatchStatus

T = TypeVar("T")


class BatchChange(Struct, frozen=True):
    """A change that another process asks for.

    Arguments:
        number: counts the changes; the batch carries out each once.
        parallel: lines that may run at the same time; None leaves it.
        is_paused: true to start no further lines; None leaves it.
    """

    number: int
    parallel: int | None = None
    is_paused: bool | None = None


class BatchFolder:
    """The files of one batch in the state folder. They are no part of its record."""

    def __init__(self, home: str, session: str) -> None:
        self.path = Path(home, "batches", session)

    def write_status(self, status: BatchStatus) -> None:
        """Replace the status. Raises OSError."""
        self._write("status.json", status)

    def read_status(self) -> BatchStatus | None:
        """Return the last status, None if there is none."""
        return self._read("status.json", BatchStatus)

    def write_change(self, change: BatchChange) -> None:
        """Ask the batch for a change."""
        self._write("change.json", change)

    def read_change(self) -> BatchChange | None:
        """Return the last change that was asked for, None if there is none."""
        return self._read("change.json", BatchChange)

    def _write(self, name: str, value: Struct) -> None:
        make_private_folder(self.path)
        new = self.path / f".{name}.{os.getpid()}"
        try:
            new.write_bytes(msgspec.json.encode(value))
            os.replace(new, self.path / name)
        except OSError:
            new.unlink(missing_ok=True)
            raise

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return get_decoder(kind).decode((self.path / name).read_bytes())
        except (OSError, msgspec.DecodeError):
            return None


def list_folders(home: str) -> list[str]:
    """Return the ids of the sessions of all batches."""
    try:
        return sorted(os.listdir(Path(home, "batches")))
    except OSError:
        return []
