"""Parses frontmatter of Markdown files (YAML between two `---` lines) and TOML, with keys' lines.

The parser reads YAML events within limits: tags create no objects, aliases are refused, and nesting
is limited. Plain scalars get their types from the core schema of YAML 1.2, as in the programs these
files are written for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, json

from ..._core.json_values import JsonValue
from ..._platform.patterns import compile_later
from .safe_read import FileDiagnostics

if TYPE_CHECKING:
    from yaml import Event


MAX_DEPTH = 20  # levels of lists and maps
MAX_CHARACTERS = 64 << 10  # characters of frontmatter


class Entry(Struct, frozen=True):
    value: JsonValue
    line: int


def read_line(
    entries: Mapping[str, Entry], key: str, diagnostics: FileDiagnostics
) -> tuple[str, int]:
    """Read a value as one line of text, with its line number; "" if missing or not a text."""
    entry = entries.get(key)
    if entry is None:
        return "", 1
    if isinstance(entry.value, str):
        return " ".join(entry.value.split()), entry.line
    diagnostics.add_warning(entry.line, f"{key} is not a text")
    return "", entry.line


class Document(Struct, frozen=True):
    """A file with frontmatter, and the text below it, stripped."""

    entries: dict[str, Entry]
    body: str
    body_line: int


def parse_document(text: str, diagnostics: FileDiagnostics) -> Document | None:
    """Split a file into frontmatter and body; None without valid frontmatter.

    Blank lines and comments may come first. `diagnostics` gets an error for invalid frontmatter,
    and a warning for keys in the wrong place.
    """
    lines = text.split("\n")
    start = _find_start(lines)
    if start is None:
        _warn_of_misplaced_keys(lines, diagnostics)
        return None
    end = _find_end(lines, start)
    if end is None:
        diagnostics.add_error(start + 1, "the frontmatter that begins here has no closing line ---")
        return None
    yaml_text = "\n".join(lines[start + 1 : end])
    entries = parse_mapping(yaml_text, diagnostics, first_line=start + 2)
    if entries is None:
        return None
    return Document(entries, "\n".join(lines[end + 1 :]).strip(), end + 2)


_FENCE = "---"
# Prose hardly ever begins with one of these; agents, skills and commands do.
_FIRST_KEY = compile_later(r"(?:name|description|tools|model|mode|prompt|allowed-tools)[ \t]*:.*")


def _find_start(lines: Sequence[str]) -> int | None:
    """Find the index of the opening fence; None if the file begins with other text."""
    if lines[0].strip() == _FENCE:
        return 0
    in_comment = False
    for index, line in enumerate(lines):
        text = line.strip()
        if in_comment or text.startswith("<!--"):
            in_comment = "-->" not in text
        elif text == _FENCE:
            return index if _has_key_below(lines, index) else None
        elif text and not text.startswith("#"):
            return None
    return None


def _find_end(lines: Sequence[str], start: int) -> int | None:
    for index in range(start + 1, len(lines)):
        if lines[index].rstrip() == _FENCE:
            return index
    # An indented line may be part of a value's text, so it counts only if no other is found.
    return next((at for at in range(start + 1, len(lines)) if lines[at].strip() == _FENCE), None)


def _has_key_below(lines: Sequence[str], index: int) -> bool:
    texts = (lines[below].strip() for below in range(index + 1, len(lines)))
    first = next((text for text in texts if text and not text.startswith("#")), "")
    return bool(_FIRST_KEY.fullmatch(first))


def _warn_of_misplaced_keys(lines: Sequence[str], diagnostics: FileDiagnostics) -> None:
    # Such keys are in the first lines of the file, or below a fence outside a code block.
    first = next((index for index, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return
    is_rule = not any(character.isalnum() for character in lines[first])
    if _FIRST_KEY.fullmatch(lines[first].strip()) or (is_rule and _has_key_below(lines, first)):
        text = "these keys are not used: frontmatter begins and ends with a line ---"
        diagnostics.add_warning(first + 1, text)
        return
    in_code = False
    for index, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and line.strip() == _FENCE and _has_key_below(lines, index):
            text = "these keys are not used: frontmatter is the first text of a file"
            diagnostics.add_warning(index + 1, text)
            return


def parse_mapping(
    text: str, diagnostics: FileDiagnostics, *, first_line: int
) -> dict[str, Entry] | None:
    """Parse a YAML mapping with text keys; None, with an error, for anything else."""
    import yaml

    if len(text) > MAX_CHARACTERS:
        diagnostics.add_error(
            first_line, f"the frontmatter has more than {MAX_CHARACTERS:,} characters"
        )
        return None
    try:
        return _read_entries(text, diagnostics, first_line)
    except _InvalidFrontmatter as error:
        diagnostics.add_error(error.line + first_line, error.reason)
        return None
    except (yaml.YAMLError, UnicodeError) as error:
        problem = _convert_error(error)
    # Unquoted values with a colon, or with `*` or `@` at the beginning, are common in real files.
    quoted, lines = _quote_plain_texts(text)
    try:
        entries = _read_entries(quoted, diagnostics, first_line) if lines else None
    except (yaml.YAMLError, _InvalidFrontmatter):
        entries = None
    if entries is None:
        diagnostics.add_error(problem.line + first_line, f"not YAML: {problem.reason}")
        return None
    for line in lines:
        diagnostics.add_warning(
            line + first_line, "not YAML: this text needs quotes; read as one text"
        )
    return entries


class _InvalidFrontmatter(Exception):
    """The frontmatter is not accepted; `line` counts from 0."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def _convert_error(error: Exception) -> _InvalidFrontmatter:
    mark: Any = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or str(error).split("\n")[0]
    return _InvalidFrontmatter(mark.line if mark else 0, reason)


def _read_entries(text: str, diagnostics: FileDiagnostics, first_line: int) -> dict[str, Entry]:
    import yaml

    events: Iterator[Event] = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    entries: dict[str, Entry] = {}
    event = next(events)
    while isinstance(event, (yaml.StreamStartEvent, yaml.DocumentStartEvent)):
        event = next(events)
    if isinstance(event, yaml.StreamEndEvent):
        return entries
    if not isinstance(event, yaml.MappingStartEvent):
        raise _InvalidFrontmatter(
            _find_line(event), "the frontmatter is not a list of `key: value` lines"
        )
    for key, value, line in _read_pairs(events, 1):
        if key in entries:
            diagnostics.add_warning(
                line + first_line, f"{key!r} appears twice; the last value counts"
            )
        entries[key] = Entry(value, line + first_line)
    return entries


def _read_pairs(events: Iterator[Event], depth: int) -> Iterator[tuple[str, JsonValue, int]]:
    """Yield keys, values and lines until the mapping ends. Its start event has been read."""
    import yaml

    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            return
        line = _find_line(event)
        if not isinstance(event, yaml.ScalarEvent):
            raise _InvalidFrontmatter(line, "a key is not a text")
        yield event.value, _read_value(next(events), events, depth), line


def _find_line(event: Event) -> int:
    # From 0. Events of a parsed text always have a mark; only the type allows None.
    return event.start_mark.line if event.start_mark else 0


def _read_value(event: Event, events: Iterator[Event], depth: int) -> JsonValue:
    import yaml

    line = _find_line(event)
    if isinstance(event, yaml.ScalarEvent):
        return _convert_scalar(event.value) if event.implicit[0] else event.value
    if isinstance(event, yaml.AliasEvent):
        raise _InvalidFrontmatter(line, "aliases (*name) are not supported; write the value itself")
    if depth >= MAX_DEPTH:
        raise _InvalidFrontmatter(line, f"more than {MAX_DEPTH} levels deep")
    if isinstance(event, yaml.MappingStartEvent):
        return {key: value for key, value, _ in _read_pairs(events, depth + 1)}
    items: list[JsonValue] = []
    for item in events:
        if isinstance(item, yaml.SequenceEndEvent):
            break
        items.append(_read_value(item, events, depth + 1))
    return items


# 18 digits fit into 64 bits. A longer number becomes a float.
_INTEGER = compile_later(r"[-+]?[0-9]{1,18}")
_NUMBER = compile_later(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_CONSTANTS = {"": None, "~": None, "null": None, "true": True, "false": False}


def _convert_scalar(text: str) -> JsonValue:
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


_KEY_LINE = compile_later(r"([A-Za-z_][\w-]*):[ \t]+([^\s\"'|>\[{&!#].*)")
_ALIAS = compile_later(r"\*[\w-]+\s*")
# Texts in real agent files begin with these characters, which YAML does not allow.
_RESERVED = "*@`%"


def _quote_plain_texts(text: str) -> tuple[str, list[int]]:
    """Quote values meant as plain text that YAML reads otherwise; also return changed lines."""
    lines = text.split("\n")
    quoted: list[int] = []
    for number, line in enumerate(lines):
        match = _KEY_LINE.fullmatch(line)
        if match is None:
            continue
        key, value = match.groups()
        has_colon = ": " in value or value.endswith(":") or " #" in value
        if has_colon or (value[0] in _RESERVED and not _ALIAS.fullmatch(value)):
            lines[number] = f"{key}: {json.encode(value.strip()).decode()}"
            quoted.append(number)
    return "\n".join(lines), quoted


# The parser's messages about a text without a closing quotation mark.
_OPEN_TEXT = compile_later(r"""Unterminated string|Illegal character '\\n'|Expected "'""")


def parse_toml(text: str, diagnostics: FileDiagnostics) -> dict[str, Entry] | None:
    """Parse a TOML file; None, with an error in `diagnostics`, if it is invalid."""
    import tomllib

    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        diagnostics.add_error(*_describe_error(text, str(error)))
        return None
    return {key: Entry(value, _find_toml_line(text, key)) for key, value in table.items()}


def _describe_error(text: str, error: str) -> tuple[int, str]:
    line = re.search(r"at line (\d+)", error)
    # For an unclosed text, the parser only says which character it expected.
    if not _OPEN_TEXT.match(error):
        return int(line[1]) if line else 1, f"not TOML: {error}"
    if line:
        return int(line[1]), "the text has no end"
    start = max(text.rfind('"""'), text.rfind("'''"))
    before = text[:start] if start >= 0 else text.rstrip()
    return before.count("\n") + 1, "the text has no end"


def _find_toml_line(text: str, key: str) -> int:
    # The parser gives no line numbers for values, so search for the key.
    match = re.search(rf"""^[ \t]*+\[*+[ \t]*+["']?{re.escape(key)}\b""", text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else 1
