"""TOML files, with the line of each top-level key."""

from __future__ import annotations

import re

from ..._platform.patterns import compile_later
from .diagnostics import FileDiagnostics
from .frontmatter import Entry

# What the parser says about a text without its closing quotation mark.
_OPEN_TEXT = compile_later(r"""Unterminated string|Illegal character '\\n'|Expected "'""")


def parse_toml(text: str, diagnostics: FileDiagnostics) -> dict[str, Entry] | None:
    """Parse a TOML file; None, with an error in `diagnostics`, if it is invalid."""
    import tomllib

    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        diagnostics.add_error(*_describe_error(text, str(error)))
        return None
    return {key: Entry(value, _find_line(text, key)) for key, value in table.items()}


def _describe_error(text: str, error: str) -> tuple[int, str]:
    """Return the line of a parser error and a description."""
    line = re.search(r"at line (\d+)", error)
    # For an unclosed text the parser only says which character it expected.
    if not _OPEN_TEXT.match(error):
        return int(line[1]) if line else 1, f"not TOML: {error}"
    if line:
        return int(line[1]), "the text has no end"
    start = max(text.rfind('"""'), text.rfind("'''"))
    before = text[:start] if start >= 0 else text.rstrip()
    return before.count("\n") + 1, "the text has no end"


def _find_line(text: str, key: str) -> int:
    # The parser gives no lines for values, so the key is searched for.
    match = re.search(rf"""^[ \t]*+\[*+[ \t]*+["']?{re.escape(key)}\b""", text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else 1
