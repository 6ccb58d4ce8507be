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
    """A variable or a header."""

    name: str
    value: str


class ServerEntry(Struct):
    """An MCP server of the client.

    Arguments:
        type: "http" for an address, "" for a program.
    """

    name: str
    type: str = ""
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
    """Parameters that only name a session."""

    session_id: str


class PromptParams(Struct, rename="camel"):
    """Parameters of session/prompt."""

    session_id: str
    prompt: tuple[dict[str, Any], ...]


class ModeParams(Struct, rename="camel"):
    """Parameters of session/set_mode."""

    session_id: str
    mode_id: str


class OptionParams(Struct, rename="camel"):
    """Parameters of session/set_config_option."""

    session_id: str
    config_id: str
    value: str | bool


class ListParams(Struct, rename="camel"):
    """Parameters of session/list."""

    cwd: str | None = None
    cursor: str | None = None


class AuthenticateParams(Struct, rename="camel"):
    """Parameters of authenticate."""

    method_id: str


class SessionAbilities(Struct):
    """What the client can show of a session; None stands for no."""

    notices: dict[str, Any] | None = None
    compaction: dict[str, Any] | None = None


class AuthAbilities(Struct):
    """Ways to log in that the client supports."""

    terminal: bool = False


class ElicitationAbilities(Struct):
    """Questions that the client can show; None stands for no."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class FileAbilities(Struct, rename="camel"):
    """What the client does with files.

    Arguments:
        read_text_file: it gives the text of a file, with changes that are not saved.
    """

    read_text_file: bool = False


class ClientAbilities(Struct):
    """Abilities of the client, from initialize; a field of another type is not used.

    Arguments:
        subagents: it shows children as sessions of their own; None if it does not.
    """

    subagents: dict[str, Any] | None = None
    session: SessionAbilities | None = None
    auth: AuthAbilities | None = None
    elicitation: ElicitationAbilities | None = None
    fs: FileAbilities | None = None

    @property
    def reads_files(self) -> bool:
        """Whether the client gives the texts of files, with changes that are not saved."""
        return self.fs is not None and self.fs.read_text_file

    @property
    def shows_forms(self) -> bool:
        """Whether the client shows forms of MCP servers."""
        return self.elicitation is not None and self.elicitation.form is not None

    @property
    def shows_addresses(self) -> bool:
        """Whether the client shows addresses that MCP servers want to be opened."""
        return self.elicitation is not None and self.elicitation.url is not None

    @property
    def shows_children(self) -> bool:
        """Whether children are sessions of their own."""
        return self.subagents is not None

    @property
    def shows_notices(self) -> bool:
        """Whether the client shows notices."""
        return self.session is not None and self.session.notices is not None

    @property
    def shows_compaction(self) -> bool:
        """Whether the client shows compactions."""
        return self.session is not None and self.session.compaction is not None


class InitializeParams(Struct, rename="camel"):
    """Parameters of initialize."""

    protocol_version: int
    client_capabilities: dict[str, Any] | None = None

    @property
    def abilities(self) -> ClientAbilities:
        """The abilities of the client."""
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
    """Return a folder that is named by an absolute path. Raises RequestError."""
    if not os.path.isabs(folder):
        raise RequestError(INVALID_PARAMS, f"cwd must be an absolute path, not {folder!r}")
    return folder


def make_servers(entries: tuple[ServerEntry, ...] | None) -> tuple[ServerSpec, ...]:
    """Return the MCP servers of the client. Raises RequestError for one that cannot be used."""
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
