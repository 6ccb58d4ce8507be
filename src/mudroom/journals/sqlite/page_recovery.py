"""Records taken straight from the pages of a SQLite file, for when SQLite itself cannot get at them any more.

A table's rows lie in leaf pages; what is too long for one goes on in a chain of overflow pages. A record counts only when its
checksum fits, so that nothing can be mistaken for one. The format: https://sqlite.org/fileformat2.html
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

_LEAF = 0x0D
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 0, 9: 0}
_COLUMNS = 5


def recover_records(path: Path) -> dict[int, bytes]:
    """Number -> JSON of every whole record that is found, in the file or in the log beside it."""
    file = path.read_bytes()
    size = _page_size(file)
    pages = {n: file[(n - 1) * size : n * size] for n in range(1, len(file) // size + 1)}
    log = path.with_name(path.name + "-wal")
    if log.exists():
        pages.update(_logged(log.read_bytes(), size))
    found: dict[int, bytes] = {}
    for n, page in pages.items():
        for seq, body in _rows(page, 100 if n == 1 else 0, pages):
            found.setdefault(seq, body)
    return dict(sorted(found.items()))


def has_torn_tail(path: Path) -> bool:
    """Whether the log beside a file ends in what was being written when its process or machine died."""
    log = path.with_name(path.name + "-wal")
    data = log.read_bytes() if log.exists() else b""
    if len(data) < 32:
        return False
    frame = int.from_bytes(data[8:12], "big") + 24
    mark, ended, at = data[16:24], True, 32
    while at + 24 <= len(data) and data[at + 8 : at + 16] == mark:
        ended = data[at + 4 : at + 8] != bytes(4) and at + frame <= len(data)
        at += frame
    return not ended


def _page_size(file: bytes) -> int:
    size = int.from_bytes(file[16:18], "big")
    return 65536 if size == 1 else size if size >= 512 and size & (size - 1) == 0 else 4096


def _logged(log: bytes, size: int) -> dict[int, bytes]:
    """The pages of the log's own generation, up to the last transaction that was ended."""
    found, pending, mark, at = dict[int, bytes](), dict[int, bytes](), log[16:24], 32
    while at + 24 + size <= len(log) and log[at + 8 : at + 16] == mark:
        pending[int.from_bytes(log[at : at + 4], "big")] = log[at + 24 : at + 24 + size]
        if log[at + 4 : at + 8] != bytes(4):
            found.update(pending)
        at += 24 + size
    return found


def _rows(page: bytes, start: int, pages: dict[int, bytes]) -> Iterator[tuple[int, bytes]]:
    if page[start : start + 1] != bytes([_LEAF]):
        return
    for n in range(int.from_bytes(page[start + 3 : start + 5], "big")):
        place = start + 8 + 2 * n
        try:
            row = _row(page, int.from_bytes(page[place : place + 2], "big"), pages)
        except (IndexError, KeyError, UnicodeDecodeError):
            continue
        if row:
            yield row


def _row(page: bytes, at: int, pages: dict[int, bytes]) -> tuple[int, bytes] | None:
    length, at = _varint(page, at)
    seq, at = _varint(page, at)
    payload = _payload(page, at, length, pages)
    header, place = _varint(payload, 0)
    kinds: list[int] = []
    while place < header:
        kind, place = _varint(payload, place)
        kinds.append(kind)
    if len(kinds) != _COLUMNS or kinds[3] < 12 or kinds[3] % 2 or kinds[4] not in _INTEGERS:
        return None
    before = header + sum(
        (kind - 12) // 2 if kind >= 12 else _INTEGERS.get(kind, 0) for kind in kinds[:3]
    )
    end = before + (kinds[3] - 12) // 2
    body, width = payload[before:end], _INTEGERS[kinds[4]]
    crc = kinds[4] - 8 if kinds[4] >= 8 else int.from_bytes(payload[end : end + width], "big")
    return (seq, body) if crc32(body) == crc else None


def _payload(page: bytes, at: int, length: int, pages: dict[int, bytes]) -> bytes:
    """A row's bytes, gathered from its page and the pages it goes on in."""
    usable = len(page)
    most, least = usable - 35, (usable - 12) * 32 // 255 - 23
    if length <= most:
        return page[at : at + length]
    here = least + (length - least) % (usable - 4)
    here = here if here <= most else least
    parts, left = [page[at : at + here]], length - here
    after = int.from_bytes(page[at + here : at + here + 4], "big")
    while left > 0:
        more = pages[after]
        parts.append(more[4 : 4 + min(left, usable - 4)])
        left, after = left - (usable - 4), int.from_bytes(more[:4], "big")
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for n in range(9):
        byte = data[at + n]
        if n == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + n + 1
    raise IndexError
