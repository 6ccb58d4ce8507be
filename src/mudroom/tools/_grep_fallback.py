"""Content search with Python's re, as a program: it prints what `rg -0` prints.

It is a program because only a process can be ended in the middle of a regular expression. It is
started by its path and imports nothing of this package. It reads one JSON object from stdin:
pattern, ignore_case, multiline, mode ("files_with_matches", "count", "content"), before and after
(lines of context), and files: the open files, as /dev/fd/N.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

_MAX_BYTES = 64 << 20  # of one file
_BOMS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


def main() -> int:
    """Search and print; return 0, or 2 with a message on stderr for an invalid pattern."""
    query: dict[str, Any] = json.load(sys.stdin)
    flags = re.MULTILINE
    if query["ignore_case"]:
        flags |= re.IGNORECASE
    if query["multiline"]:
        flags |= re.DOTALL
    try:
        pattern = re.compile(query["pattern"], flags)
    except (re.error, OverflowError) as error:
        print(error, file=sys.stderr)  # noqa: T201  the output of a program
        return 2
    for path in query["files"]:
        _search(pattern, path, query, sys.stdout.buffer)
    return 0


def _search(pattern: re.Pattern[str], path: str, query: dict[str, Any], out: BinaryIO) -> None:
    lines = _read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    lines = [line.removesuffix("\r") for line in lines]
    if query["multiline"]:
        matches = sorted(set(_touched_lines(pattern, lines)))
    else:
        matches = [number for number, line in enumerate(lines) if pattern.search(line)]
    if not matches:
        return
    name = os.fsencode(path) + b"\0"
    if query["mode"] == "files_with_matches":
        out.write(name)
    elif query["mode"] == "count":
        out.write(name + b"%d\n" % len(matches))
    else:
        _print(name, lines, matches, query["before"], query["after"], out)
    out.flush()  # a timeout during the next file must not lose these matches


def _touched_lines(pattern: re.Pattern[str], lines: list[str]) -> Iterator[int]:
    """Yield the numbers of all lines that a match touches."""
    text = "\n".join(lines) + "\n"
    previous = 0
    line = 0
    for match in pattern.finditer(text):
        line += text.count("\n", previous, match.start())
        previous = match.start()
        if previous < len(text):
            last = text.count("\n", previous, max(previous, match.end() - 1))
            yield from range(line, line + 1 + last)


def _print(
    name: bytes, lines: list[str], matches: list[int], before: int, after: int, out: BinaryIO
) -> None:
    matched = set(matches)
    last = -1
    for match in matches:
        for number in range(max(match - before, last + 1), min(match + after + 1, len(lines))):
            if (last < 0 or number > last + 1) and (before or after):
                out.write(b"--\n")
            mark = b":" if number in matched else b"-"
            text = lines[number].encode("utf-8", "surrogateescape")
            out.write(name + b"%d" % (number + 1) + mark + text + b"\n")
            last = number


def _read_text(path: str) -> str:
    """Return the text of a file, bytes that are not UTF-8 as surrogates; "" on an error."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = file.read(_MAX_BYTES)
    except OSError:
        return ""
    encoding = next((encoding for bom, encoding in _BOMS if data.startswith(bom)), "utf-8")
    return data.decode(encoding, "replace" if encoding == "utf-16" else "surrogateescape")


if __name__ == "__main__":
    sys.exit(main())
