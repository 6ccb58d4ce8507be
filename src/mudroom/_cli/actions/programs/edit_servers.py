"""`mudroom mcp add` and `remove`: change `.mcp.json`, or the user's own file of MCP servers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from ...._adapters.integrations.usable_programs import UsablePrograms
from ...._platform.git_folders import list_project_folders
from ...._platform.regular_files import is_missing, read_regular_file
from ....errors import UnknownName, UsageError
from ...output.progress import print_notice
from ..load_settings import load_settings
from .load_programs import find_own_servers, require_programs

_SPACE = re.compile(r"\s*")
_INDENT = "  "


class Member(Struct, frozen=True):
    """Positions of a table's member in the text: its start (the name), its value, its end."""

    name: str
    start: int
    value: int
    end: int


def list_members(text: str, table: int) -> list[Member]:
    """List the members of the table that begins at this position in valid JSON text."""
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
    # An empty table: indent twice as far as its line, one level more.
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
            # Also remove the comma after the member, or the one before it if it is last.
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
    """Find the space before a position, None if other text precedes it on the line."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return before if not before.strip() and "\n" in text[:at] else None


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


SCOPES = ("project", "user")
_FILE = ".mcp.json"
_KEY = "mcpServers"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def add_server(
    cwd: str,
    name: str,
    target: str,
    arguments: Sequence[str],
    *,
    scope: str | None,
    transport: str | None,
    variables: Sequence[str],
    headers: Sequence[str],
) -> None:
    """Add a server to a file, and print the file's path.

    `variables` are NAME=VALUE entries, `headers` are "Name: value" entries. Raises UsageError if a
    part is wrong, the name is in use, or the file cannot be changed.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a server",
            remedy="Use up to 64 letters, digits, _ and -.",
        )
    scope = scope or "project"
    entry = _make_entry(target, arguments, transport, variables, headers)
    settings = load_settings(cwd)
    path = _find_file(cwd, scope)
    text, servers = _read(path)
    if name in servers:
        raise UsageError(
            f"the server {name} exists already",
            where=str(path),
            remedy=f"To replace it, first: mudroom mcp remove {name}",
        )
    was_trusted = not require_programs(settings, cwd).untrusted
    text = text if text.strip() else "{}\n"
    if _find_servers(text) is None:
        text = add_member(text, text.index("{"), _KEY, {})
    at = _find_servers(text)
    assert at is not None
    _write(path, add_member(text, at, name, entry))
    print(path, flush=True)
    programs = require_programs(settings, cwd)
    # The user wrote this entry, so a project whose other programs are trusted stays trusted.
    if scope == "project" and was_trusted:
        programs.remember_trust(settings.home)
        programs = require_programs(settings, cwd)
    print_notice(_describe_addition(programs, name, path), prefix="")


def remove_server(cwd: str, name: str, *, scope: str | None) -> None:
    """Remove a server from its file, by default the project's, then the user's.

    Raises UsageError if the server is in another program's file, UnknownName if it is in none.
    """
    settings = load_settings(cwd)
    programs = require_programs(settings, cwd)
    was_trusted = not programs.untrusted
    for place in SCOPES if scope is None else (scope,):
        path = _find_file(cwd, place)
        text, servers = _read(path)
        at = _find_servers(text) if servers else None
        if at is not None and name in servers:
            _write(path, remove_member(text, at, name))
            if place == "project" and was_trusted:
                require_programs(settings, cwd).remember_trust(settings.home)
            print(path, flush=True)
            print_notice(f"Removed: {name}", prefix="")
            return
    origins = [item.spec.origin for item in programs.listed_servers if item.spec.name == name]
    if origins:
        raise UsageError(
            f"the server {name} is in a file that this command does not change",
            where=origins[0],
            remedy="Remove it there, or choose the --scope of its file.",
        )
    raise UnknownName("MCP server", name, {item.spec.name for item in programs.listed_servers})


def _describe_addition(programs: UsablePrograms, name: str, path: Path) -> str:
    added = [item for item in programs.listed_servers if item.spec.name == name]
    here = next((item for item in added if item.spec.origin == str(path)), None)
    if here and here.lacks_trust:
        return f"Added: {name}. To use it, trust the programs of this folder: mudroom trust add"
    reason = here.reason if here else "see: mudroom mcp"
    return f"Added: {name}. " + (f"Not used: {reason}" if reason else "The next session uses it.")


def _make_entry(
    target: str,
    arguments: Sequence[str],
    transport: str | None,
    variables: Sequence[str],
    headers: Sequence[str],
) -> dict[str, Any]:
    # click passes unknown options on, for the server's own arguments.
    if target.startswith("-"):
        raise UsageError(
            "a command or an address must follow the name of the server",
            where=target,
            remedy="Write options before the name. See: mudroom mcp add --help",
        )
    is_address = target.startswith(("http://", "https://"))
    kind = transport or ("http" if is_address else "stdio")
    if (kind == "stdio") == is_address:
        needed = "a command" if kind == "stdio" else "an address that begins with http"
        raise UsageError(f"a server with the transport {kind} needs {needed}", where=target)
    misplaced = [*variables, *arguments] if is_address else headers
    if misplaced:
        other = "--env and arguments are" if is_address else "--header is"
        raise UsageError(
            f"{other} not for the transport {kind}", where=misplaced[0], remedy="Leave it out."
        )
    if is_address:
        entry: dict[str, Any] = {"type": kind, "url": target}
        if headers:
            entry["headers"] = _split_pairs(headers, ":", "--header", "Name: value")
        return entry
    entry = {"command": target, "args": list(arguments)}
    if variables:
        entry["env"] = _split_pairs(variables, "=", "--env", "NAME=VALUE")
    return entry


def _split_pairs(texts: Sequence[str], separator: str, flag: str, form: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, found_separator, value = text.partition(separator)
        if not found_separator or not name.strip():
            # A header has a blank after its colon; blanks in a variable are part of its value.
            raise UsageError(f"{text!r} has not the form {form}", where=flag)
        pairs[name.strip()] = value.strip() if separator == ":" else value
    return pairs


def _find_file(cwd: str, scope: str) -> Path:
    """Find a scope's file; for a project, the nearest one, else a new one in the folder."""
    if scope == "user":
        return Path(find_own_servers())
    paths = [Path(place, _FILE) for place in list_project_folders(cwd)]
    return next((path for path in paths if os.path.lexists(path)), paths[0])


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    """Read a file's text and its servers; both are empty if the file does not exist."""
    try:
        text = read_regular_file(path).decode()
        table: object = json.loads(text) if text.strip() else {}
    except (OSError, ValueError, RecursionError) as error:
        if is_missing(path, error):
            return "", {}
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"the file cannot be changed: {reason}",
            where=str(path),
            remedy="Correct the file, or edit it yourself: comments are not understood here.",
        ) from None
    servers = cast("dict[str, Any]", table).get(_KEY, {}) if isinstance(table, dict) else None
    if not isinstance(servers, dict):
        raise UsageError(
            f"the file has no table {_KEY}", where=str(path), remedy="Correct the file."
        )
    return text, cast("dict[str, Any]", servers)


def _find_servers(text: str) -> int | None:
    """Find the table of servers in the text."""
    members = list_members(text, text.index("{"))
    # Of several members with the same name, the last counts.
    return next((member.value for member in reversed(members) if member.name == _KEY), None)


# The old file stays complete until the new one replaces it, and a link stays a link.
def _write(path: Path, text: str) -> None:
    target = Path(os.path.realpath(path))
    new = target.with_name(f"{target.name}.new")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.write_text(text, "utf-8")
        if target.exists():
            new.chmod(target.stat().st_mode & 0o7777)
        new.replace(target)
    except OSError as error:
        raise UsageError(f"the file cannot be written: {error.strerror}", where=str(path)) from None
