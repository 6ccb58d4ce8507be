"""Values of the `initialize` request, and functions the command line provides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from mudroom import Approver, Session
from mudroom.permissions import Rule
from mudroom.ports import HookCallback

from ..file_prompts import FilePrompt
from ..json_values import as_list, as_object, as_text

if TYPE_CHECKING:
    from mudroom import ServerSpec

    from .host_tools import HostToolSource


class HostSetup(Struct, frozen=True, kw_only=True):
    """The host's settings for the session, from `initialize`."""

    agents: Mapping[str, Any] = field(default_factory=dict[str, Any])  # with keys of agent files
    system_prompt: str = ""  # replaces the built-in one, unless ""
    appended_prompt: str = ""
    json_schema: dict[str, Any] | None = None  # of the answers; None for text
    hooks: Mapping[str, Any] = field(default_factory=dict[str, Any])  # matchers by event
    servers: tuple[str, ...] = ()  # names of the in-process MCP servers
    # In-process servers' answers to `initialize` and `tools/list`, by name, sent ahead.
    manifests: Mapping[str, Any] = field(default_factory=dict[str, Any])
    process_servers: Mapping[str, Any] = field(default_factory=dict[str, Any])  # as in `.mcp.json`
    shows_child_text: bool = False  # text and thinking of children are sent
    keeps_background: bool = False  # an interrupt leaves background work running
    title: str = ""
    unused: tuple[str, ...] = ()  # fields that mudroom does not use


class SdkSessionPlan(Struct, frozen=True, kw_only=True):
    """The session to open. "" means as the flags say."""

    setup: HostSetup = HostSetup()
    model: str = ""
    mode: str = ""
    rules: tuple[Rule, ...] = ()
    servers: Mapping[str, Any] = field(default_factory=dict[str, Any])  # from `mcp_set_servers`
    sources: tuple[HostToolSource, ...] = ()
    # Names used by `mcp_set_servers`, which replace servers from files and flags.
    replaced_servers: tuple[str, ...] = ()
    disabled_servers: tuple[str, ...] = ()
    resume: str = ""  # id of the session to continue
    id: str = ""  # of a new session


class SessionParts(Struct, frozen=True, kw_only=True):
    approver: Approver
    hooks: Mapping[str, Sequence[HookCallback]] = field(
        default_factory=dict[str, Sequence[HookCallback]]
    )


class ChosenServers(Struct, frozen=True, kw_only=True):
    """The MCP servers of a session, outside the host."""

    used: Sequence[ServerSpec]
    scopes: Mapping[str, str]  # where each is configured, including those the host turned off
    errors: Mapping[str, str]  # why servers from `mcp_set_servers` are unused, by name
    notices: Sequence[str]  # about servers from `initialize`


class PlannedSession(Struct, frozen=True, kw_only=True):
    """A session not yet open."""

    session: Session
    servers: ChosenServers
    load_prompts: Callable[[], Sequence[FilePrompt]] = tuple  # from files, as they are now
    list_styles: Callable[[], Sequence[str]] = tuple
    outputs: dict[str, Any] | None = None  # schema of the answers; None for text


PrepareSession = Callable[[SdkSessionPlan, SessionParts], PlannedSession]
"""Makes a plan's session from the command line's flags and settings."""


class SdkOptions(Struct, frozen=True, kw_only=True):
    """Flags that concern only the protocol."""

    servers: tuple[str, ...] = ()  # in-process MCP servers named by the flags
    streams_parts: bool = False  # send parts of answers while they stream
    shows_hooks: bool = False
    asks_host: bool = False  # the host decides on calls that need confirmation
    repeats_prompts: bool = False
    marks_states: bool = True  # mark lines about the session's state as for the SDK only
    hook_events: Collection[str] = ()
    list_models: Callable[[], Sequence[str]] = tuple  # model strings that work here
    resumes: bool = False  # the flags continue a recorded session
    resumes_at: str = ""  # `uuid` of the answer after which to continue, "" for the last


_USED = frozenset(
    (
        "subtype",
        "agents",
        "systemPrompt",
        "appendSystemPrompt",
        "jsonSchema",
        "hooks",
        "sdkMcpServers",
        "sdkMcpServerManifests",
        "sdkMcpServerManifestsOrigin",
        "mcpServers",
        "forwardSubagentText",
        "perTaskStopAffordance",
        "title",
        "supportedDialogKinds",
    )
)
"""Fields of `initialize` that are used or declare the host's abilities."""


def parse_setup(request: Mapping[str, Any], servers: Sequence[str] = ()) -> HostSetup:
    """Parse the values of an `initialize` request, leaving out fields of another type."""
    prompt = request.get("systemPrompt")
    parts = as_list(prompt) or [prompt]
    return HostSetup(
        agents=as_object(request.get("agents")),
        system_prompt="\n\n".join(part for part in parts if isinstance(part, str) and part),
        appended_prompt=as_text(request.get("appendSystemPrompt")),
        json_schema=as_object(request.get("jsonSchema")) or None,
        hooks=as_object(request.get("hooks")),
        servers=tuple(dict.fromkeys([*servers, *map(str, as_list(request.get("sdkMcpServers")))])),
        manifests=as_object(request.get("sdkMcpServerManifests")),
        process_servers=as_object(request.get("mcpServers")),
        shows_child_text=request.get("forwardSubagentText") is True,
        keeps_background=request.get("perTaskStopAffordance") is True,
        title=as_text(request.get("title")),
        unused=tuple(
            name for name, value in request.items() if name not in _USED and value not in (None, {})
        ),
    )
