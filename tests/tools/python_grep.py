"""A plain search in Python: the results that the grep tool must have."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

from mudroom._adapters.tools import grep
from mudroom._adapters.tools._ripgrep import SearchQuery
from mudroom._adapters.tools._search_scope import SearchScope
from mudroom._core.ports import Workspace
from mudroom._core.tools import ToolResult

BOMS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


def search_in_python(workspace: Workspace, arguments: grep.Arguments) -> ToolResult:
    """Search the same files with Python's re and format the matches in the same way."""
    query = grep.build_query(arguments)
    output = grep.MatchRows(arguments)
    choice = grep.FileChoice(workspace, arguments)
    scope = SearchScope(workspace, math.inf, named=choice.named)
    files = list(choice.list_files(scope))
    binary = [path for path in files if path.endswith(".png")]
    left_out = scope.describe_left_out(choice.accepts)
    if binary:
        left_out.append(f"{len(binary)} binary file ({', '.join(binary)})")
    for path in [path for path in files if path not in binary]:
        for record in find_matches(query, workspace.root, path):
            if not output.add(record):
                return output.make_result(left_out)
    return output.make_result(left_out)


def find_matches(query: SearchQuery, root: str, path: str) -> Iterator[bytes]:
    flags = re.MULTILINE
    if query.ignore_case:
        flags |= re.IGNORECASE
    if query.multiline:
        flags |= re.DOTALL
    pattern = re.compile(query.pattern, flags)
    lines = read_lines(f"{root}/{path}")
    if query.multiline:
        hits = sorted(set(list_touched_lines(pattern, lines)))
    else:
        hits = [number for number, line in enumerate(lines) if pattern.search(line)]
    name = path.encode() + b"\0"
    if hits and query.mode == "files_with_matches":
        yield path.encode()
    elif hits and query.mode == "count":
        yield name + b"%d" % len(hits)
    elif hits:
        yield from list_content(name, lines, hits, query)


def list_content(
    name: bytes, lines: list[str], hits: list[int], query: SearchQuery
) -> Iterator[bytes]:
    last = -1
    for hit in hits:
        first = max(hit - query.before, last + 1)
        for number in range(first, min(hit + query.after + 1, len(lines))):
            if (last < 0 or number > last + 1) and (query.before or query.after):
                yield b"--"
            mark = b":" if number in hits else b"-"
            text = lines[number].encode("utf-8", "surrogateescape")
            yield name + b"%d" % (number + 1) + mark + text
            last = number


def list_touched_lines(pattern: re.Pattern[str], lines: list[str]) -> Iterator[int]:
    """Yield the numbers of all lines that a match touches."""
    text = "\n".join(lines) + "\n"
    for match in pattern.finditer(text):
        if match.start() < len(text):
            first = text.count("\n", 0, match.start())
            end = max(match.start(), match.end() - 1)
            yield from range(first, first + 1 + text.count("\n", match.start(), end))


def read_lines(path: str) -> list[str]:
    data = Path(path).read_bytes()
    encoding = next((encoding for bom, encoding in BOMS if data.startswith(bom)), "utf-8")
    if b"\xe9 " in data:
        encoding = "cp1252"  # the only letter outside ASCII in such files of the tests
    text = data.decode(encoding, "replace" if encoding == "utf-16" else "surrogateescape")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
