"""Files through which other processes read the status of a batch and change it."""

from __future__ import annotations

import fcntl
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

    def ask_for_change(
        self, *, parallel: int | None = None, is_paused: bool | None = None
    ) -> BatchChange:
        """Ask the batch for a change, and return it with its number.

        It includes an earlier change that the batch has not carried out, whoever asked for it.
        """
        make_private_folder(self.path)
        with open(self.path / "change.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            earlier = self.read_change() or BatchChange(0)
            status = self.read_status()
            if status is None or status.change < earlier.number:
                parallel = earlier.parallel if parallel is None else parallel
                is_paused = earlier.is_paused if is_paused is None else is_paused
            change = BatchChange(earlier.number + 1, parallel, is_paused)
            self._write("change.json", change)
        return change

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
