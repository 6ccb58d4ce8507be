"""Reads the MCP servers declared by the user and a folder, in the formats of six programs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, cast

from msgspec import Struct

from ...._platform.git_folders import list_project_folders
from ...._platform.patterns import compile_later
from ...._platform.regular_files import read_regular_file
from ..config_files import EntryReader, Finding, make_digest
from .files import FORMATS, Fields, ServerEntry, describe_server, list_entries, read_codex_variables
from .spec import ServerSpec

# Fields that count only in the user's own files -> their names there.
_OWN_FIELDS = {"is_trusted": "trust", "is_parallel": "supports_parallel_tool_calls"}
_EXPANDED = ("command", "args", "env", "cwd", "url", "headers", "headers_helper")


class LoadedServers(NamedTuple):
    """The servers in all files, highest precedence first; names may occur more than once."""

    servers: list[ServerSpec]
    findings: list[Finding]


def load_servers(
    folder: str,
    *,
    user_home: str,
    environ: Mapping[str, str],
    own_file: str = "",
    agent_servers: Iterable[ServerEntry] = (),
) -> LoadedServers:
    """Load the servers of a folder, its parents in the repository, and the user; start none.

    The order is: local, project (nearest folder first), user, agents. `usable_programs` then
    selects the trusted ones, and one for each name.
    """
    findings: list[Finding] = []
    places = list_project_folders(folder)
    user_home = os.path.realpath(user_home) if user_home else ""
    servers: list[ServerSpec] = []
    of_files = list_entries(places, user_home, own_file, findings)
    for entry in chain(of_files, agent_servers):
        expander = Expander(
            environ, entry.place or places[0], user_home, os.path.dirname(entry.path)
        )
        if server := _parse_server(entry, expander, findings):
            servers.append(server)
    return LoadedServers(servers, findings)


def parse_servers(
    entries: Mapping[str, Any], *, origin: str, folder: str, environ: Mapping[str, str]
) -> LoadedServers:
    """Parse the servers of an option (`origin`) in the format of `.mcp.json`: name -> entry."""
    findings: list[Finding] = []
    expander = Expander(environ, folder, environ.get("HOME", ""), folder)
    parsed = [
        _parse_server(ServerEntry(name, entry, origin, "claude", "option"), expander, findings)
        for name, entry in entries.items()
    ]
    return LoadedServers([server for server in parsed if server], findings)


def _parse_server(
    source: ServerEntry, expander: Expander, findings: list[Finding]
) -> ServerSpec | None:
    """Parse a server; None if it is turned off, or unusable and reported in a finding."""
    subject = f"server {source.name}" + (f" of agent {source.agent}" if source.agent else "")
    reader = EntryReader(source.entry, source.path, subject, findings)
    is_off = reader.read_flag("disabled") or reader.read_flag("enabled") is False
    if reader.is_usable and is_off:
        reader.add_note("it is turned off in the file")
        return None
    fields = FORMATS[source.format](reader)
    env_file = reader.read_text("envFile") if source.format in ("cursor", "vscode") else ""
    digested: list[Any] = [source.format, source.name, source.entry]
    digested += [source.agent] if source.agent else []
    # Before the variables are replaced: screens must not show their values.
    shown = describe_server(fields) if reader.is_usable else ""
    _expand(fields, source, expander)
    if source.format == "codex":
        read_codex_variables(reader, fields, expander.environ)
    if env_file:
        path = os.path.join(expander.place, expander.expand(source.format, env_file))
        variables = _read_env_file(path, reader)
        fields["env"] = {**variables, **fields["env"]}
        digested.append(variables)
        shown = f"{shown} (variables of {path})"
    _drop_claims(source, fields, reader)
    _check(source, fields, expander, reader)
    if not reader.is_usable:
        return None
    reader.report_unused()
    return ServerSpec(
        name=source.name,
        origin=source.path,
        scope=source.scope,
        place=source.place,
        agent=source.agent,
        shown=shown,
        digest=make_digest(*digested),
        **{key: value for key, value in fields.items() if value is not None},
    )


def _expand(fields: Fields, source: ServerEntry, expander: Expander) -> None:
    for key in _EXPANDED:
        if fields.get(key):
            fields[key] = expand_all(fields[key], partial(expander.expand, source.format))
    if fields["transport"] == "stdio" and (source.place or fields.get("cwd")):
        fields["cwd"] = os.path.join(source.place, fields.get("cwd") or "").rstrip("/")


def _drop_claims(source: ServerEntry, fields: Fields, reader: EntryReader) -> None:
    """Drop claims that only the user may make from a folder's or plugin's server."""
    if not source.place and source.scope != "plugin":
        return
    for field, name in _OWN_FIELDS.items():
        if fields.pop(field, None):
            reader.add_note(f"{name} counts only in your own files")


def _check(source: ServerEntry, fields: Fields, expander: Expander, reader: EntryReader) -> None:
    if not reader.is_usable:
        return
    if not source.name.strip():
        reader.reject("it has no name")
    if fields["transport"] == "stdio" and not fields["command"]:
        reader.reject("it has neither a command nor a url")
    elif fields["transport"] in ("http", "sse") and not fields["url"].startswith(
        ("http://", "https://", "$")
    ):
        reader.reject("it needs a url that begins with http:// or https://")
    if expander.inputs:
        names = ", ".join(dict.fromkeys(expander.inputs))
        reader.reject(
            f"it asks for the input {names}, which only VS Code does",
            "Add the server with mudroom mcp add, and use ${NAME} of an environment variable.",
        )
    for name in dict.fromkeys(expander.unset):
        reader.add_note(
            f"{name} has no value, so it stays in the text as it is",
            f"Set the environment variable {name}." if name.isidentifier() else "",
            is_problem=True,
        )


def _read_env_file(path: str, reader: EntryReader) -> dict[str, str]:
    try:
        text = read_regular_file(path).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reader.add_note(
            f"envFile {path} is not used: {getattr(error, 'strerror', None) or error}",
            "Create the file, or remove envFile.",
            is_problem=True,
        )
        return {}
    variables: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            variables[name.strip()] = value.strip().strip("\"'")
    return variables


# An unclosed brace matches up to the end of the text, which then stays unchanged. If it did not
# match at all, every later brace would be tried as a beginning, in quadratic time.
_OPEN = r"(?P<open>\Z)"
_BRACED = compile_later(rf"\$\{{([A-Za-z_]\w*+)(?:\}}|:-([^}}]*+)(?:\}}|{_OPEN}))")
_SHELL_LIKE = compile_later(rf"(?:{_BRACED.pattern}|\$([A-Za-z_]\w*))")
_EDITOR = compile_later(rf"\$\{{([^}}]++)(?:\}}|{_OPEN})")
_OPENCODE = compile_later(rf"\{{(env|file):([^}}]++)(?:\}}|{_OPEN})")


class Expander(Struct):
    environ: Mapping[str, str]
    place: str  # folder of the project
    user_home: str
    base: str  # folder of the file
    unset: list[str] = []  # variables without a value; they stay in the text
    inputs: list[str] = []  # what an editor would ask for

    def expand(self, program: str, text: str) -> str:
        if program not in EXPANSIONS:
            return text
        pattern, replace = EXPANSIONS[program]
        return pattern.sub(
            lambda match: match[0] if match["open"] is not None else replace(self, match), text
        )

    def replace_braced(self, match: re.Match[str]) -> str:
        return self._look_up(match[1], match[2], match[0])

    def replace_shell_like(self, match: re.Match[str]) -> str:
        if match[4]:
            return self._look_up(match[4], None, match[0])
        return self.replace_braced(match)

    def _look_up(self, name: str, default: str | None, text: str) -> str:
        value = self.environ.get(name)
        if default is not None:
            return value or default
        if value is None:
            self.unset.append(name)
            return text
        return value

    def replace_editor(self, match: re.Match[str]) -> str:
        kind, _, name = match[1].partition(":")
        folders = {
            "workspaceFolder": self.place,
            "workspaceFolderBasename": os.path.basename(self.place),
            "userHome": self.user_home,
            "pathSeparator": os.sep,
            "/": os.sep,
        }
        if match[1] in folders:
            return folders[match[1]]
        if kind == "env":
            return self._look_up(name, None, match[0])
        if kind == "input":
            self.inputs.append(name)
        else:
            self.unset.append(match[1])
        return match[0]

    def replace_opencode(self, match: re.Match[str]) -> str:
        if match[1] == "env":
            return self._look_up(match[2], None, match[0])
        path = os.path.join(self.base, os.path.expanduser(match[2]))
        try:
            return read_regular_file(path).decode().strip()
        except (OSError, ValueError):
            self.unset.append(match[0])
            return match[0]


# How programs write variables; Codex has none.
EXPANSIONS: dict[str, tuple[re.Pattern[str], Callable[[Expander, re.Match[str]], str]]] = {
    # ${NAME} and ${NAME:-default}
    "claude": (_BRACED, Expander.replace_braced),
    # ${env:NAME}, ${workspaceFolder} and their like
    "cursor": (_EDITOR, Expander.replace_editor),
    "vscode": (_EDITOR, Expander.replace_editor),
    # $NAME, ${NAME} and ${NAME:-default}
    "gemini": (_SHELL_LIKE, Expander.replace_shell_like),
    # {env:NAME} and {file:PATH}
    "opencode": (_OPENCODE, Expander.replace_opencode),
}


def expand_all(value: object, expand: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return expand(value)
    if isinstance(value, tuple):
        return tuple(expand(item) for item in cast("tuple[str, ...]", value))
    return {key: expand(item) for key, item in cast("dict[str, str]", value).items()}
