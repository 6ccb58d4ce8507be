"""Rules from settings files: the person's own count whole; a project's can only narrow, for someone else wrote them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from .._core.agents import Mode
from ..errors import UsageError
from .rules import ALLOW, VERDICTS, Rule, parse_rule

PROJECT_FILES = (".claude/settings.json", ".claude/settings.local.json")
USER_FILE = ".claude/settings.json"


class PermissionSettings(Struct, frozen=True):
    """What settings files say.

    Arguments:
        mode: of the person's file, narrowed by the project's; None where none says. no_bypass: whether bypassing is forbidden.
        notes: what was left out, and why, for the person.
    """

    rules: tuple[Rule, ...] = ()
    mode: Mode | None = None
    bypass_disabled: bool = False
    notes: tuple[str, ...] = ()


class _RuleLists(Struct, rename="camel"):
    allow: list[Any] = []
    ask: list[Any] = []
    deny: list[Any] = []
    default_mode: str = ""
    disable_bypass_permissions_mode: str = ""


class _SettingsFile(Struct):
    permissions: _RuleLists = msgspec.field(default_factory=_RuleLists)


def load_settings(folder: str, *, user_home: str) -> PermissionSettings:
    """Rules of the person's file and of the project's, which are looked for in `folder` and up to the root of its repository.

    Arguments:
        person: the person's home folder, "" for none. Files that are broken are told of in the notes.
    """
    rules: list[Rule] = []
    notes: list[str] = []
    mode: Mode | None = None
    no_bypass = False
    own = Path(user_home, USER_FILE) if user_home else None
    for path in ([own] if own else []) + [path for path in _project_files(folder) if path != own]:
        lists, text = _read(path, notes)
        rules.extend(_rules(path, lists, text, path == own, notes))
        mode = _mode(path, lists.default_mode, mode, path == own, notes)
        no_bypass |= lists.disable_bypass_permissions_mode == "disable"
    return PermissionSettings(tuple(rules), mode, no_bypass, tuple(notes))


def _project_files(folder: str) -> Iterator[Path]:
    start = Path(os.path.realpath(folder))
    for place in (start, *start.parents):
        yield from (place / name for name in PROJECT_FILES if (place / name).is_file())
        if (place / ".git").exists():
            return


def _read(path: Path, notes: list[str]) -> tuple[_RuleLists, str]:
    try:
        data = path.read_bytes()
        return msgspec.json.decode(data, type=_SettingsFile).permissions, data.decode(
            "utf-8", "replace"
        )
    except FileNotFoundError:
        return _RuleLists(), ""
    except (OSError, msgspec.DecodeError) as error:
        notes.append(f"its permissions are not used: {error} ({path})")
        return _RuleLists(), ""


def _rules(path: Path, lists: _RuleLists, text: str, own: bool, notes: list[str]) -> Iterator[Rule]:
    base = str(path.parent if own else path.parent.parent)
    left_out = 0
    for verdict in VERDICTS:
        for entry in getattr(lists, verdict):
            if verdict == ALLOW and not own:
                left_out += 1
                continue
            try:
                yield parse_rule(
                    str(entry),
                    verdict,
                    origin=f"{path}:{_line_number(text, str(entry))}",
                    base=base,
                )
            except UsageError as error:
                notes.append(str(error))
    if left_out:
        notes.append(
            f"{left_out} rules of this folder that allow something are not used: a project can only narrow ({path})"
        )


def _mode(path: Path, name: str, so_far: Mode | None, own: bool, notes: list[str]) -> Mode | None:
    if not name:
        return so_far
    try:
        mode = Mode(name)
    except ValueError:
        notes.append(f"unknown permission mode {name!r} ({path})")
        return so_far
    most = Mode.ACCEPT_EDITS if own else so_far or Mode.DEFAULT
    if mode.limit_to(most) is not mode:
        notes.append(
            f"the permission mode {name} is not taken from a {'settings' if own else 'project'} file ({path})"
        )
    return mode.limit_to(most)


def _line_number(text: str, entry: str) -> int:
    at = text.find(msgspec.json.encode(entry).decode())
    return text.count("\n", 0, at) + 1 if at >= 0 else 1
