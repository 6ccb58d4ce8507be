"""Checked parameters of the client's requests, and the abilities it declares."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from mudroom import ServerSpec
from mudroom.driving import explain_mismatch

from ..json_values import as_object
from .json_rpc import INVALID_PARAMS, RequestError

_T = TypeVar("_T")
_ORIGIN = "the editor"


class NameValue(Struct):
    name: str
    value: str


class ServerEntry(Struct):
    name: str
    type: str = ""  # "http" for an address, "" for a program
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[NameValue, ...] = ()
    url: str = ""
    headers: tuple[NameValue, ...] = ()


class FolderParams(Struct, rename="camel"):
    """Parameters of session/new, session/load and session/resume."""

    cwd: str
    session_id: str = ""
    mcp_servers: tuple[ServerEntry, ...] | None = ()
    additional_directories: tuple[str, ...] | None = ()


class SessionParams(Struct, rename="camel"):
    session_id: str


class PromptParams(Struct, rename="camel"):
    session_id: str
    prompt: tuple[dict[str, Any], ...]


class ModeParams(Struct, rename="camel"):
    session_id: str
    mode_id: str


class OptionParams(Struct, rename="camel"):
    session_id: str
    config_id: str
    value: str | bool


class ListParams(Struct, rename="camel"):
    cwd: str | None = None
    cursor: str | None = None


class AuthenticateParams(Struct, rename="camel"):
    method_id: str


class ClientAbilities(Struct, frozen=True, kw_only=True):
    """Abilities declared in initialize. A part that is missing or of another type means no."""

    shows_children: bool = False  # as separate sessions
    shows_notices: bool = False
    shows_compaction: bool = False
    shows_forms: bool = False
    shows_addresses: bool = False
    has_terminal: bool = False  # for logging in
    reads_files: bool = False  # provides a file's text with unsaved changes


class InitializeParams(Struct, rename="camel"):
    protocol_version: int
    client_capabilities: dict[str, Any] | None = None

    @property
    def abilities(self) -> ClientAbilities:
        values = self.client_capabilities or {}
        session, elicitation = (
            as_object(values.get("session")),
            as_object(values.get("elicitation")),
        )
        return ClientAbilities(
            shows_children=isinstance(values.get("subagents"), dict),
            shows_notices=isinstance(session.get("notices"), dict),
            shows_compaction=isinstance(session.get("compaction"), dict),
            shows_forms=isinstance(elicitation.get("form"), dict),
            shows_addresses=isinstance(elicitation.get("url"), dict),
            has_terminal=as_object(values.get("auth")).get("terminal") is True,
            reads_files=as_object(values.get("fs")).get("readTextFile") is True,
        )


def parse_params(params: Mapping[str, Any], kind: type[_T]) -> _T:
    """Parse a request's parameters. Raises RequestError naming the wrong field."""
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        reason = explain_mismatch(error, what="parameters")
        raise RequestError(INVALID_PARAMS, f"wrong parameters: {reason}") from None


def require_absolute(folder: str) -> str:
    if not os.path.isabs(folder):
        raise RequestError(INVALID_PARAMS, f"cwd must be an absolute path, not {folder!r}")
    return folder


def make_servers(entries: tuple[ServerEntry, ...] | None) -> tuple[ServerSpec, ...]:
    return tuple(map(_make_server, entries or ()))


def _make_server(entry: ServerEntry) -> ServerSpec:
    if entry.type not in ("", "stdio", "http"):
        raise RequestError(
            INVALID_PARAMS,
            f"the MCP server {entry.name} has the transport {entry.type}; mudroom supports "
            "programs and http",
        )
    is_program = entry.type != "http"
    if not (entry.command if is_program else entry.url):
        lacks = "command" if is_program else "url"
        raise RequestError(INVALID_PARAMS, f"the MCP server {entry.name} has no {lacks}")
    return ServerSpec(
        name=entry.name,
        origin=_ORIGIN,
        scope="option",
        transport="stdio" if is_program else "http",
        command=entry.command,
        args=entry.args,
        env={each.name: each.value for each in entry.env},
        url=entry.url,
        headers={each.name: each.value for each in entry.headers},
        shown=" ".join([entry.command, *entry.args]) if is_program else entry.url,
    )
