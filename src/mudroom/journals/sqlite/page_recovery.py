"""Recovery of records from the raw pages of a file that SQLite can no longer read.

The rows of a table are in leaf pages; a long row continues in a chain of overflow pages. A record
counts only if its checksum is right, so no other bytes are mistaken for one. Format:
https://sqlite.org/fileformat2.html
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

_LEAF_PAGE = 0x0D
_INTEGER_SIZES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 0, 9: 0}
"""Serial type of an integer column -> bytes of its value.

Types 8 and 9 are the constants 0 and 1.
"""

_COLUMNS = 5
_LOG_HEADER = 32
_FRAME_HEADER = 24


def recover_records(path: Path) -> dict[int, bytes]:
    """Return number -> JSON of every intact record in the file and its log, in order."""
    file = path.read_bytes()
    size = _read_page_size(file)
    pages = {n: file[(n - 1) * size : n * size] for n in range(1, len(file) // size + 1)}
    log = _get_log_path(path)
    if log.exists():
        pages.update(_read_committed_pages(log.read_bytes(), size))
    records: dict[int, bytes] = {}
    for number, page in pages.items():
        # The first page begins with the 100 bytes of the file header.
        for seq, body in _read_rows(page, 100 if number == 1 else 0, pages):
            records.setdefault(seq, body)
    return dict(sorted(records.items()))


def has_torn_tail(path: Path) -> bool:
    """Return True if the log of a file ends in an unfinished transaction of a killed process."""
    log = _get_log_path(path)
    data = log.read_bytes() if log.exists() else b""
    if len(data) < _LOG_HEADER:
        return False
    frame_size = int.from_bytes(data[8:12], "big") + _FRAME_HEADER
    salt = data[16:24]
    is_committed = True
    start = _LOG_HEADER
    while start + _FRAME_HEADER <= len(data) and data[start + 8 : start + 16] == salt:
        is_complete = start + frame_size <= len(data)
        is_committed = is_complete and _is_commit_frame(data, start)
        start += frame_size
    return not is_committed


def _get_log_path(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _is_commit_frame(log: bytes, start: int) -> bool:
    return log[start + 4 : start + 8] != bytes(4)


def _read_page_size(file: bytes) -> int:
    size = int.from_bytes(file[16:18], "big")
    if size == 1:
        return 65536
    is_power_of_two = size >= 512 and size & (size - 1) == 0
    return size if is_power_of_two else 4096


def _read_committed_pages(log: bytes, page_size: int) -> dict[int, bytes]:
    """Return the pages of the log's current generation, up to its last committed transaction."""
    committed: dict[int, bytes] = {}
    pending: dict[int, bytes] = {}
    salt = log[16:24]
    start = _LOG_HEADER
    frame_size = _FRAME_HEADER + page_size
    while start + frame_size <= len(log) and log[start + 8 : start + 16] == salt:
        number = int.from_bytes(log[start : start + 4], "big")
        pending[number] = log[start + _FRAME_HEADER : start + frame_size]
        if _is_commit_frame(log, start):
            committed.update(pending)
        start += frame_size
    return committed


def _read_rows(page: bytes, start: int, pages: dict[int, bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield number and JSON of the intact records in a page. `start`: offset of the page header."""
    if page[start : start + 1] != bytes([_LEAF_PAGE]):
        return
    for n in range(int.from_bytes(page[start + 3 : start + 5], "big")):
        pointer = start + 8 + 2 * n
        try:
            row = _read_row(page, int.from_bytes(page[pointer : pointer + 2], "big"), pages)
        except (IndexError, KeyError):
            continue
        if row:
            yield row


def _read_row(page: bytes, offset: int, pages: dict[int, bytes]) -> tuple[int, bytes] | None:
    length, offset = _read_varint(page, offset)
    seq, offset = _read_varint(page, offset)
    payload = _join_payload(page, offset, length, pages)
    header, position = _read_varint(payload, 0)
    types: list[int] = []
    while position < header:
        serial_type, position = _read_varint(payload, position)
        types.append(serial_type)
    if len(types) != _COLUMNS:
        return None
    body_type, crc_type = types[3:]
    is_blob = body_type >= 12 and body_type % 2 == 0
    if not is_blob or crc_type not in _INTEGER_SIZES:
        return None
    body_start = header + sum(map(_get_column_size, types[:3]))
    body_end = body_start + _get_column_size(body_type)
    body = payload[body_start:body_end]
    if crc_type >= 8:
        crc = crc_type - 8
    else:
        crc = int.from_bytes(payload[body_end : body_end + _INTEGER_SIZES[crc_type]], "big")
    return (seq, body) if crc32(body) == crc else None


def _get_column_size(serial_type: int) -> int:
    if serial_type >= 12:
        return (serial_type - 12) // 2
    return _INTEGER_SIZES.get(serial_type, 0)


def _join_payload(page: bytes, offset: int, length: int, pages: dict[int, bytes]) -> bytes:
    """Return the bytes of a row, joined from its page and its overflow pages."""
    usable = len(page)
    maximum = usable - 35
    if length <= maximum:
        return page[offset : offset + length]
    minimum = (usable - 12) * 32 // 255 - 23
    local = minimum + (length - minimum) % (usable - 4)
    if local > maximum:
        local = minimum
    chunks = [page[offset : offset + local]]
    left = length - local
    next_page = int.from_bytes(page[offset + local : offset + local + 4], "big")
    while left > 0:
        overflow = pages[next_page]
        chunks.append(overflow[4 : 4 + min(left, usable - 4)])
        left -= usable - 4
        next_page = int.from_bytes(overflow[:4], "big")
    return b"".join(chunks)


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return the variable-length integer at an offset, and the offset after it."""
    value = 0
    for n in range(8):
        byte = data[offset + n]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, offset + n + 1
    return value << 8 | data[offset + 8], offset + 9
