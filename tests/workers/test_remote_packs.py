"""Packs of trees in the session's process: who reads them, and failures to write them."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from mudroom._adapters.workers.remote.tree_transfer import PIECE_BYTES, TreePacks
from mudroom.errors import WorkspaceError

DATA = bytes(PIECE_BYTES + 1)


class Writer:
    """Writes packs of two pieces.

    Attributes:
        keys: of the packs that were written.
        failures: raised by the next calls.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys: list[tuple[str, tuple[str, ...]]] = []
        self.failures: list[Exception] = []
        self.packs = TreePacks(self.write, lambda: folder)

    def write(self, tree: str, known: tuple[str, ...], path: str) -> None:
        self.keys.append((tree, known))
        Path(path).write_bytes(DATA)
        if self.failures:
            raise self.failures.pop()

    def count_files(self) -> int:
        return len(list(self.folder.iterdir()))


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


async def test_a_pack_stays_while_a_machine_reads_it(writer: Writer) -> None:
    keys = [("tree", (str(number),)) for number in range(7)]
    for number, key in enumerate(keys):
        assert len((await writer.packs.read(number, key, 0)).data) == PIECE_BYTES
    assert writer.count_files() == 7
    for number, key in enumerate(keys):
        assert len((await writer.packs.read(number, key, PIECE_BYTES)).data) == 1
    assert writer.keys == keys
    assert writer.count_files() == 4
    await writer.packs.read("later", keys[-1], 0)
    assert len(writer.keys) == 7


async def test_the_pack_of_a_reader_that_has_ended_is_removed(writer: Writer) -> None:
    for number in range(6):
        await writer.packs.read("one process", ("tree", (str(number),)), 0)
    for reader in range(3):
        await writer.packs.read(reader, (f"tree {reader}", ()), 0)
        writer.packs.end(reader)
    assert writer.count_files() <= 5


async def test_a_pack_that_failed_is_written_again(writer: Writer) -> None:
    writer.failures = [OSError(errno.ENOSPC, "No space left on device")]
    with pytest.raises(WorkspaceError, match=r"files cannot be sent.*No space left on device"):
        await writer.packs.read("reader", ("tree", ()), 0)
    assert writer.count_files() == 0
    assert (await writer.packs.read("reader", ("tree", ()), 0)).size == len(DATA)


async def test_a_reader_that_is_cancelled_leaves_the_pack_to_others(writer: Writer) -> None:
    reads = [asyncio.create_task(writer.packs.read(each, ("tree", ()), 0)) for each in range(2)]
    await asyncio.sleep(0)
    reads[0].cancel()
    assert (await reads[1]).size == len(DATA)
    assert len(writer.keys) == 1
    await writer.packs.close()
