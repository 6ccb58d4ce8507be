"""Permission rules from settings files.

The user's file applies in full. A project's files, which a stranger may have written, can only add
restrictions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from .._core.agents import Mode
from .._platform.regular_files import is_missing, read_regular_file
from ..errors import UsageError
from .rules import RULE_VERDICTS, Rule, Verdict, parse_rule

PROJECT_FILES = (".claude/settings.json", ".claude/settings.local.json")
USER_FILE = ".claude/settings.json"


class PermissionSettings(Struct, frozen=True):
    """Permissions read from settings files.

    Arguments:
        mode: the mode of the user's file, narrowed by the project's; None if no file sets one.
        forbids_bypass: true if a file forbids the mode bypassPermissions.
        notices: entries that are not used, and why, for the user.
    """

    rules: tuple[Rule, ...] = ()
    mode: Mode | None = None
    forbids_bypass: bool = False
    notices: tuple[str, ...] = ()


class _RuleLists(Struct, rename="camel"):
    allow: list[Any] = []
    ask: list[Any] = []
    deny: list[Any] = []
    default_mode: str = ""
    disable_bypass_permissions_mode: str = ""


class _SettingsFile(Struct, rename="camel"):
    permissions: _RuleLists = msgspec.field(default_factory=_RuleLists)
    # Not used here, but keeps a file whose hooks cannot be decoded from being reported twice.
    hooks: Any = None


def load_permission_files(folder: str, *, user_home: str) -> PermissionSettings:
    """Load the rules of the user's file and of the project's files.

    Project files are searched for in `folder` and its parents, up to the root of the repository. A
    file that cannot be read is skipped and reported in the notices.

    Arguments:
        user_home: the user's home folder, "" for none.
    """
    rules: list[Rule] = []
    notices: list[str] = []
    mode: Mode | None = None
    forbids_bypass = False
    user_file = Path(user_home, USER_FILE) if user_home else None
    paths = [user_file] if user_file else []
    paths += [path for path in _list_project_files(folder) if path != user_file]
    for path in paths:
        is_user_file = path == user_file
        settings, text = _read(path, notices)
        lists = settings.permissions
        rules.extend(_parse_rules(path, lists, text, is_user_file, notices))
        mode = _apply_mode(path, lists.default_mode, mode, is_user_file, notices)
        forbids_bypass |= lists.disable_bypass_permissions_mode == "disable"
    return PermissionSettings(tuple(rules), mode, forbids_bypass, tuple(notices))


def _list_project_files(folder: str) -> Iterator[Path]:
    start = Path(os.path.realpath(folder))
    for place in (start, *start.parents):
        yield from (place / name for name in PROJECT_FILES)
        if (place / ".git").exists():
            return


def _read_bytes(path: Path, notices: list[str]) -> bytes | None:
    """Read a file; None if it is missing, or unusable and reported in a notice."""
    try:
        return read_regular_file(path)
    except OSError as error:
        if not is_missing(path, error):
            notices.append(f"this file is not used: {error.strerror} ({path})")
        return None


def _read(path: Path, notices: list[str]) -> tuple[_SettingsFile, str]:
    data = _read_bytes(path, notices)
    if data is None:
        return _SettingsFile(), ""
    try:
        settings = msgspec.json.decode(data, type=_SettingsFile)
    except (ValueError, RecursionError) as error:
        reason = "it nests too deeply" if isinstance(error, RecursionError) else error
        notices.append(f"this file is not used: {reason} ({path})")
        return _SettingsFile(), ""
    return settings, data.decode("utf-8", "replace")


def _parse_rules(
    path: Path, lists: _RuleLists, text: str, is_user_file: bool, notices: list[str]
) -> Iterator[Rule]:
    base = str(path.parent if is_user_file else path.parent.parent)
    ignored = 0
    for verdict in RULE_VERDICTS:
        for entry in map(str, getattr(lists, verdict)):
            if verdict == Verdict.ALLOW and not is_user_file:
                ignored += 1
                continue
            origin = f"{path}:{_find_line_number(text, entry)}"
            try:
                yield parse_rule(entry, verdict, origin=origin, base=base)
            except UsageError as error:
                notices.append(str(error))
    if ignored:
        notices.append(
            f"{ignored} allow rules of this folder are not used:"
            f" a project can only add restrictions ({path})"
        )


def _apply_mode(
    path: Path, name: str, current: Mode | None, is_user_file: bool, notices: list[str]
) -> Mode | None:
    """Apply a file's `defaultMode`. No file can switch permissions off."""
    if not name:
        return current
    try:
        mode = Mode(name)
    except ValueError:
        notices.append(f"unknown permission mode {name!r} ({path})")
        return current
    widest = Mode.ACCEPT_EDITS if is_user_file else current or Mode.DEFAULT
    allowed = mode.limit_to(widest)
    if allowed is not mode:
        kind = "settings" if is_user_file else "project"
        notices.append(f"a {kind} file may not set the permission mode {name} ({path})")
    return allowed


def _find_line_number(text: str, entry: str) -> int:
    at = text.find(msgspec.json.encode(entry).decode())
    return text.count("\n", 0, at) + 1 if at >= 0 else 1
