"""TOML files: each top-level key with its value and line number."""

from __future__ import annotations

import re

from .diagnostics import FileDiagnostics
from .frontmatter import Entry


def parse_toml(text: str, diagnostics: FileDiagnostics) -> dict[str, Entry] | None:
    """Parse a TOML file; None, with an error in `diagnostics`, when it is invalid."""
    import tomllib

    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        line = re.search(r"at line (\d+)", str(error))
        diagnostics.add_error(int(line[1]) if line else 1, f"not TOML: {error}")
        return None
    return {key: Entry(value, _find_line(text, key)) for key, value in table.items()}


def _find_line(text: str, key: str) -> int:
    match = re.search(rf"""^[ \t]*\[*[ \t]*["']?{re.escape(key)}\b""", text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else 1
