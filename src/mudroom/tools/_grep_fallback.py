"""A program of its own that searches files with Python's re and prints what `rg -0` would; a process, since only that can be ended.

It reads one JSON object from stdin: pattern, ignore_case, multiline, mode ("files_with_matches", "count", "content"),
before, after (lines of context), files, each as the place where it is open, /dev/fd/N. It imports nothing of this package: it is
started by its path, and quickly.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

_LIMIT = 64 << 20
_BOMS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


def main() -> int:
    """Search, print; 0 when done, 2 with a word on stderr when the pattern is none."""
    query: dict[str, Any] = json.load(sys.stdin)
    flags = (
        (re.IGNORECASE if query["ignore_case"] else 0)
        | re.MULTILINE
        | (re.DOTALL if query["multiline"] else 0)
    )
    try:
        pattern = re.compile(query["pattern"], flags)
    except (re.error, OverflowError) as error:
        print(error, file=sys.stderr)  # noqa: T201  a program's own output
        return 2
    for path in query["files"]:
        _search(pattern, path, query, sys.stdout.buffer)
    return 0


def _search(pattern: re.Pattern[str], path: str, query: dict[str, Any], out: BinaryIO) -> None:
    text = _text(path)
    rows = text.split("\n")
    if rows[-1] == "":
        rows.pop()
    rows = [row.removesuffix("\r") for row in rows]
    hits = (
        sorted(set(_lines_of(pattern, rows)))
        if query["multiline"]
        else [n for n, row in enumerate(rows) if pattern.search(row)]
    )
    name = os.fsencode(path) + b"\0"
    if hits and query["mode"] == "files_with_matches":
        out.write(name)
    elif hits and query["mode"] == "count":
        out.write(name + b"%d\n" % len(hits))
    elif hits:
        _print(name, rows, hits, query["before"], query["after"], out)
    if hits:
        out.flush()  # what was found must not wait for a file on which the search will be ended


def _lines_of(pattern: re.Pattern[str], rows: list[str]) -> Iterator[int]:
    """Numbers of all lines that a match touches."""
    text = "\n".join(rows) + "\n"
    past = line = 0
    for found in pattern.finditer(text):
        line += text.count("\n", past, found.start())
        past = found.start()
        if past < len(text):
            yield from range(line, line + 1 + text.count("\n", past, max(past, found.end() - 1)))


def _print(
    name: bytes, rows: list[str], hits: list[int], before: int, after: int, out: BinaryIO
) -> None:
    matched, last = set(hits), -1
    for hit in hits:
        for n in range(max(hit - before, last + 1), min(hit + after + 1, len(rows))):
            if (last < 0 or n > last + 1) and (before or after):
                out.write(b"--\n")
            mark = b":" if n in matched else b"-"
            out.write(
                name + b"%d" % (n + 1) + mark + rows[n].encode("utf-8", "surrogateescape") + b"\n"
            )
            last = n


def _text(path: str) -> str:
    """The file's text, bytes that are no UTF-8 kept as they are; "" for what cannot be read."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = file.read(_LIMIT)
    except OSError:
        return ""
    encoding = next((encoding for bom, encoding in _BOMS if data.startswith(bom)), "utf-8")
    return data.decode(encoding, "surrogateescape" if encoding != "utf-16" else "replace")


if __name__ == "__main__":
    sys.exit(main())
