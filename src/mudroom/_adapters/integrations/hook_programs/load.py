"""Reads the hooks declared by the user and a folder, in the formats of three programs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from ...._platform.git_folders import list_project_folders
from ....errors import suggest_names
from ..config_files import EntryReader, Finding, make_digest, read_json, read_toml
from ..file_names import CURSOR_HOOKS, HOOK_FILES, Dialect
from ..mcp_servers.spec import Scope
from .events import CODEX_EVENTS, GEMINI_EVENTS, OTHER_EVENTS, RULES, parse_matcher
from .spec import HookKind, HookSpec

_KINDS: tuple[str, ...] = get_args(HookKind)
_MILLISECOND = 0.001


class LoadedHooks(NamedTuple):
    """The hooks of all files, the user's first.

    `places_off` are the folders whose hooks are turned off; "" means all hooks.
    """

    hooks: list[HookSpec]
    findings: list[Finding]
    places_off: frozenset[str] = frozenset()

    def are_off(self, place: str) -> bool:
        return bool({"", place} & self.places_off)


class HookFile(Struct, frozen=True):
    """A file with hooks. `place`: see HookSpec."""

    path: str
    dialect: Dialect
    scope: Scope
    place: str


def load_hooks(folder: str, *, user_home: str) -> LoadedHooks:
    """Load the hooks of the user, of a folder, and of its parents in the repository."""
    findings: list[Finding] = []
    hooks: list[HookSpec] = []
    places_off = set[str]()
    for files in _list_files(list_project_folders(folder), user_home):
        of_place: list[HookSpec] = []
        off = ""
        for file in files:
            table = _read_table(file, findings)
            if table.get("disableAllHooks") is True:
                off = off or file.path
            of_place += read_hooks(file, table, findings)
        if not off:
            hooks += of_place
            continue
        places_off.add(files[0].place)
        is_user = not files[0].place
        whose = "all hooks are" if is_user else "the hooks of this folder are"
        findings.append(Finding(off, f"{whose} turned off by disableAllHooks", is_problem=False))
        if is_user:
            return LoadedHooks([], findings, frozenset(places_off))
    return LoadedHooks(hooks, findings, frozenset(places_off))


def _list_files(places: list[str], user_home: str) -> Iterator[list[HookFile]]:
    home = os.path.realpath(user_home) if user_home else ""
    if home:
        yield [
            HookFile(os.path.join(home, name), dialect, "user", "") for name, dialect in HOOK_FILES
        ]
    for place in places:
        if place != home:
            yield [
                HookFile(
                    os.path.join(place, name),
                    dialect,
                    "local" if ".local." in name else "project",
                    place,
                )
                for name, dialect in HOOK_FILES
            ]


def _read_table(file: HookFile, findings: list[Finding]) -> dict[str, Any]:
    if file.path.endswith(CURSOR_HOOKS):
        if read_json(file.path, findings).get("hooks"):
            remedy = "Copy them to .claude/settings.json."
            findings.append(Finding(file.path, "hooks of Cursor are not used", remedy))
        return {}
    unreadable: list[Finding] = []
    read = read_toml if file.path.endswith(".toml") else read_json
    table = read(file.path, unreadable)
    # The permission rules already report such a file of Claude Code at the start of a session.
    is_claude = file.dialect == "claude"
    findings += [replace(finding, is_problem=not is_claude) for finding in unreadable]
    features = EntryReader(table.get("features") or {}, file.path, "features", [])
    config = EntryReader(table.get("hooksConfig") or {}, file.path, "hooksConfig", [])
    is_off = features.read_flag("hooks") is False or config.read_flag("enabled") is False
    if is_off and table.get("hooks"):
        text = "the hooks of this file are turned off in it"
        findings.append(Finding(file.path, text, is_problem=False))
        return {}
    return table


def read_hooks(
    file: HookFile, table: dict[str, Any], findings: list[Finding]
) -> Iterator[HookSpec]:
    events = table.get("hooks")
    if not events:
        return
    if not isinstance(events, dict):
        text = "hooks is not used: it is no table"
        findings.append(Finding(file.path, text, "Correct the file."))
        return
    config = EntryReader(table.get("hooksConfig") or {}, file.path, "hooksConfig", [])
    off = config.read_texts("disabled") if file.dialect == "gemini" else ()
    for file_event, groups in cast("dict[str, Any]", events).items():
        if not isinstance(groups, list):
            # Settings for all hooks, such as `state` in a Codex file.
            if file.dialect == "claude":
                text = f"hooks.{file_event} is not used: it is no list"
                findings.append(Finding(file.path, text, "Correct the file."))
            continue
        event = _check_event(file, file_event, findings)
        for group in cast("list[Any]", groups) if event else []:
            for hook in _read_group(file, event, group, findings):
                name = hook.options.get("name")
                if name in off or (hook.command and hook.command in off):
                    text = f"hook {file_event} is turned off in the file: {hook.shown}"
                    findings.append(Finding(file.path, text, is_problem=False))
                else:
                    yield hook


def _check_event(file: HookFile, name: str, findings: list[Finding]) -> str:
    """Return the event, or "" with a finding if it is unknown."""
    if file.dialect == "gemini" and name in GEMINI_EVENTS:
        return GEMINI_EVENTS[name] or name
    known = (*RULES, *OTHER_EVENTS, *(CODEX_EVENTS if file.dialect == "codex" else ()))
    if name in known:
        return name
    expected = tuple(GEMINI_EVENTS) if file.dialect == "gemini" else known
    remedy = suggest_names(name, expected, otherwise="Correct the name of the event.")
    findings.append(Finding(file.path, f"unknown event {name}; its hooks are not used", remedy))
    return ""


def _read_group(
    file: HookFile, event: str, group: object, findings: list[Finding]
) -> Iterator[HookSpec]:
    reader = EntryReader(group, file.path, f"hook {event}", findings)
    matcher = reader.read_text("matcher")
    reader.skip("description", "sequential")
    handlers = reader.entry.get("hooks")
    reader.skip("hooks")
    if reader.is_usable and not isinstance(handlers, list):
        reader.reject("it has no list of hooks")
    if not reader.is_usable:
        return
    reader.report_unused()
    for handler in cast("list[Any]", handlers):
        if hook := _read_handler(file, event, matcher, handler, findings):
            yield hook


def _read_handler(
    file: HookFile, event: str, matcher: str, handler: object, findings: list[Finding]
) -> HookSpec | None:
    reader = EntryReader(handler, file.path, f"hook {event}", findings)
    kind = reader.read_text("type") or "command"
    if reader.is_usable and kind not in _KINDS:
        reader.reject(f"the type {kind} is unknown", suggest_names(kind, _KINDS))
    arguments = reader.read_texts("args")
    has_arguments = reader.entry.get("args") is not None
    unit = _MILLISECOND if file.dialect == "gemini" else 1.0
    failure = reader.read_text("onFailure")
    background = reader.read_flag("async")
    options = _read_options(reader)
    hook = HookSpec(
        event=event,
        kind=cast("HookKind", kind),
        origin=file.path,
        scope=file.scope,
        place=file.place,
        matcher="" if matcher == "*" else matcher,
        command=reader.read_text("command"),
        args=arguments if has_arguments else None,
        url=reader.read_text("url"),
        headers=reader.read_variables("headers"),
        allowed_variables=reader.read_texts("allowedEnvVars"),
        condition=reader.read_text("if"),
        timeout=reader.read_seconds("timeout", "timeoutSec", unit=unit),
        status_message=reader.read_text("statusMessage"),
        once=bool(reader.read_flag("once")),
        in_background=bool(background or options.get("asyncRewake")),
        blocks_on_failure=failure == "block",
        options=options,
        dialect=file.dialect,
        file_event=_find_file_event(file, event),
        shown=_describe(reader, arguments),
        digest=make_digest(file.dialect, event, matcher, handler),
    )
    needed = {"command": hook.command, "http": hook.url, "mcp_tool": options.get("tool")}
    if reader.is_usable and not needed.get(kind, options.get("prompt")):
        field = {"http": "url", "mcp_tool": "tool"}.get(kind, "prompt")
        reader.reject(f"it has no {'command' if kind == 'command' else field}")
    elif reader.is_usable and kind == "mcp_tool" and not options.get("server"):
        reader.reject("it has no server")
    if problem := parse_matcher(matcher).problem:
        reader.reject(problem, "Use names separated by |, or a simpler expression.")
    if not reader.is_usable:
        return None
    reader.report_unused()
    return hook


def _read_options(reader: EntryReader) -> dict[str, Any]:
    names = ("server", "tool", "input", "prompt", "model", "continueOnBlock", "shell", "name")
    reader.skip(*names, "asyncRewake", "description", "commandWindows", "command_windows")
    return {name: reader.entry[name] for name in (*names, "asyncRewake") if name in reader.entry}


def _find_file_event(file: HookFile, event: str) -> str:
    if file.dialect != "gemini":
        return ""
    return next((name for name, mapped in GEMINI_EVENTS.items() if mapped == event), event)


def _describe(reader: EntryReader, arguments: tuple[str, ...]) -> str:
    command = str(reader.entry.get("command") or "")
    if command and reader.entry.get("args") is not None:
        return shlex.join([command, *arguments])
    if tool := reader.entry.get("tool"):
        return f"{reader.entry.get('server', '')} {tool}"
    return command or str(reader.entry.get("url") or reader.entry.get("prompt") or "")
