"""Program that the kernel needs milliseconds to start: its file has more than a thousand parts."""

from __future__ import annotations

import platform
import struct
import sys
from pathlib import Path

import pytest

_CODE = b"\xb8\x22\x00\x00\x00\x0f\x05\xeb\xf7"
"""x86-64: call pause() for ever."""
_PARTS = 1_100
"""Close to the maximum: the kernel reads a table of at most 64 KiB."""
_PAGE = 0x1000
_ADDRESS = 0x1000_0000

needs_slow_program = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="the program of this test is for Linux on x86-64",
)


def write_slow_program(path: Path) -> None:
    """Write a program (ELF format) that sleeps; the kernel maps its parts one after the other."""
    table_end = 64 + 56 * _PARTS
    code_start = -(-table_end // _PAGE) * _PAGE
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, _ADDRESS, 64, 0, 0, 64, 56, _PARTS, 64, 0, 0)
    table = _describe_part(code_start, _ADDRESS, len(_CODE))
    for number in range(1, _PARTS):
        # Every third page: the kernel would join neighbours.
        table += _describe_part(0, _ADDRESS + 3 * _PAGE * number, _PAGE)
    path.write_bytes((header + table).ljust(code_start, b"\0") + _CODE)
    path.chmod(0o755)


def _describe_part(offset: int, address: int, size: int) -> bytes:
    readable_and_executable = 5
    return struct.pack(
        "<IIQQQQQQ", 1, readable_and_executable, offset, address, address, size, size, _PAGE
    )
