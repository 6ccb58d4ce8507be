"""Parameters of the client's requests, checked, and the abilities that it states."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from mudroom import ServerSpec
from mudroom.driving import explain_mismatch

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


class SessionAbilities(Struct):
    notices: dict[str, Any] | None = None
    compaction: dict[str, Any] | None = None


class AuthAbilities(Struct):
    terminal: bool = False


class ElicitationAbilities(Struct):
    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class FileAbilities(Struct, rename="camel"):
    read_text_file: bool = False  # it gives the text of a file, with changes that are not saved


class ClientAbilities(Struct):
    """Abilities of the client, from initialize; None is a no, and so is another type."""

    subagents: dict[str, Any] | None = None  # it shows children as sessions of their own
    session: SessionAbilities | None = None
    auth: AuthAbilities | None = None
    elicitation: ElicitationAbilities | None = None
    fs: FileAbilities | None = None

    @property
    def reads_files(self) -> bool:
        return self.fs is not None and self.fs.read_text_file

    @property
    def shows_forms(self) -> bool:
        return self.elicitation is not None and self.elicitation.form is not None

    @property
    def shows_addresses(self) -> bool:
        return self.elicitation is not None and self.elicitation.url is not None

    @property
    def shows_children(self) -> bool:
        return self.subagents is not None

    @property
    def shows_notices(self) -> bool:
        return self.session is not None and self.session.notices is not None

    @property
    def shows_compaction(self) -> bool:
        return self.session is not None and self.session.compaction is not None


class InitializeParams(Struct, rename="camel"):
    protocol_version: int
    client_capabilities: dict[str, Any] | None = None

    @property
    def abilities(self) -> ClientAbilities:
        values = self.client_capabilities or {}
        abilities = ClientAbilities()
        for name in ClientAbilities.__struct_fields__:
            try:
                part = msgspec.convert({name: values.get(name)}, ClientAbilities)
            except msgspec.ValidationError:
                continue
            setattr(abilities, name, getattr(part, name))
        return abilities


def parse_params(params: Mapping[str, Any], kind: type[_T]) -> _T:
    """Return the parameters of a request. Raises RequestError that names the wrong field."""
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
