"""Changes single members in the text of a JSON file; all other text stays as it is."""

from __future__ import annotations

import json
import re

from msgspec import Struct

_SPACE = re.compile(r"\s*")
_INDENT = "  "


class Member(Struct, frozen=True):
    """Where the name, the value and the end of a table's member are in the text."""

    name: str
    start: int
    value: int
    end: int


def list_members(text: str, table: int) -> list[Member]:
    """List the members of the table that begins at a position of valid JSON text."""
    decoder = json.JSONDecoder()
    members: list[Member] = []
    at = _skip_space(text, table + 1)
    while text[at] != "}":
        start = at
        name, at = decoder.raw_decode(text, at)
        # The 1 is the colon.
        value = _skip_space(text, _skip_space(text, at) + 1)
        _, end = decoder.raw_decode(text, value)
        members.append(Member(name, start, value, end))
        at = _skip_space(text, end)
        if text[at] == ",":
            at = _skip_space(text, at + 1)
    return members


def add_member(text: str, table: int, name: str, value: object) -> str:
    """Add a member at the end of a table, laid out like the others."""
    members = list_members(text, table)
    if members:
        indent = _find_indent(text, members[-1].start)
        separator = "\n" + indent if indent is not None else " "
        member = _format_member(name, value, indent)
        end = members[-1].end
        return f"{text[:end]},{separator}{member}{text[end:]}"
    # An empty table: indent one level more than its line, by as much as that line is.
    match = re.match(r"[ \t]*", text[text.rfind("\n", 0, table) + 1 :])
    outer = match[0] if match else ""
    indent = outer + (outer or _INDENT)
    member = _format_member(name, value, indent)
    close = _skip_space(text, table + 1)
    return f"{text[: table + 1]}\n{indent}{member}\n{outer}{text[close:]}"


def remove_member(text: str, table: int, name: str) -> str:
    """Remove all members of this name."""
    while True:
        members = list_members(text, table)
        at = next((n for n, member in enumerate(members) if member.name == name), None)
        if at is None:
            # Take the comma after the member along, or the one before the last member.
            return text
        if at + 1 < len(members):
            text = text[: members[at].start] + text[members[at + 1].start :]
        else:
            start = members[at - 1].end if at else members[at].start
            text = text[:start] + text[members[at].end :]


def _format_member(name: str, value: object, indent: str | None) -> str:
    """Format a member; `indent` is the start of its line, None for one line."""
    # The members of `mcpServers` are two levels deep.
    space = None if indent is None else indent[: len(indent) // 2] or _INDENT
    lines = json.dumps(value, indent=space, ensure_ascii=False).split("\n")
    return f"{json.dumps(name)}: " + f"\n{indent}".join(lines)


def _find_indent(text: str, at: int) -> str | None:
    """Return the space before a position, None if there is more before it on the line."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return before if not before.strip() and "\n" in text[:at] else None


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
