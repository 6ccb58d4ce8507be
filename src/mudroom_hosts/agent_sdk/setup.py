"""Values of the `initialize` request, and the functions that the command line provides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from mudroom import Approver, Session
from mudroom.permissions import Rule
from mudroom.ports import HookCallback

from ..file_prompts import FilePrompt
from .channel import as_list, as_object, as_text

if TYPE_CHECKING:
    from mudroom import ServerSpec

    from .host_tools import HostToolSource


class HostSetup(Struct, frozen=True, kw_only=True):
    """Settings of the host for the session, from `initialize`.

    Arguments:
        agents: agents by name, with the keys of agent files.
        system_prompt: in place of the built-in one; "" keeps that.
        appended_prompt: text after the system prompt.
        json_schema: schema of the answers; None for text.
        hooks: matchers with the ids of callbacks, by event.
        servers: names of the in-process MCP servers.
        manifests: their greetings and tools, if the host sent them ahead.
        process_servers: other MCP servers, in the form of `.mcp.json`, by name.
        shows_child_text: whether text and thinking of children are sent.
        keeps_background: whether an interrupt leaves background work alone.
        title: name of a new session, "" for none.
        unused: fields that mudroom does not use.
    """

    agents: Mapping[str, Any] = field(default_factory=dict[str, Any])
    system_prompt: str = ""
    appended_prompt: str = ""
    json_schema: dict[str, Any] | None = None
    hooks: Mapping[str, Any] = field(default_factory=dict[str, Any])
    servers: tuple[str, ...] = ()
    manifests: Mapping[str, Any] = field(default_factory=dict[str, Any])
    process_servers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    shows_child_text: bool = False
    keeps_background: bool = False
    title: str = ""
    unused: tuple[str, ...] = ()


class SdkSessionPlan(Struct, frozen=True, kw_only=True):
    """The session to open.

    Arguments:
        model: model string, "" for that of the flags.
        mode: permission mode, "" for that of the flags.
        rules: further permission rules of the host.
        servers: MCP servers of `mcp_set_servers`, in the form of `.mcp.json`, by name.
        sources: in-process MCP servers of the host.
        replaced_servers: names that mcp_set_servers has used; servers of files and flags with these
            names are left out.
        disabled_servers: names of MCP servers that the host turned off.
        resume: id of the session to continue, "" for that of the flags.
        id: id of a new session, "" for any.
    """

    setup: HostSetup = HostSetup()
    model: str = ""
    mode: str = ""
    rules: tuple[Rule, ...] = ()
    servers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sources: tuple[HostToolSource, ...] = ()
    replaced_servers: tuple[str, ...] = ()
    disabled_servers: tuple[str, ...] = ()
    resume: str = ""
    id: str = ""


class SessionParts(Struct, frozen=True, kw_only=True):
    """Parts of a session that the host provides.

    Arguments:
        hooks: its functions, by event.
    """

    approver: Approver
    hooks: Mapping[str, Sequence[HookCallback]] = field(
        default_factory=dict[str, Sequence[HookCallback]]
    )


class ChosenServers(Struct, frozen=True, kw_only=True):
    """The MCP servers of a session, outside the host.

    Arguments:
        used: those that the session gets.
        scopes: where each is configured, by name; those that the host turned off, too.
        errors: why servers of `mcp_set_servers` are not used, by name.
        notices: lines about servers of `initialize`.
    """

    used: Sequence[ServerSpec]
    scopes: Mapping[str, str]
    errors: Mapping[str, str]
    notices: Sequence[str]


class PlannedSession(Struct, frozen=True, kw_only=True):
    """A session that is not open yet.

    Arguments:
        outputs: schema of the answers; None for text.
        servers: MCP servers outside the host.
        load_prompts: returns the prompts of files, as they are now.
        list_styles: returns the names of the output styles of files.
    """

    session: Session
    servers: ChosenServers
    load_prompts: Callable[[], Sequence[FilePrompt]] = tuple
    list_styles: Callable[[], Sequence[str]] = tuple
    outputs: dict[str, Any] | None = None


PrepareSession = Callable[[SdkSessionPlan, SessionParts], PlannedSession]
"""Function that makes the session of a plan from the flags and settings of the command line."""


class SdkOptions(Struct, frozen=True, kw_only=True):
    """Flags that concern only the protocol.

    Arguments:
        servers: names of in-process MCP servers that the flags name.
        streams_parts: send parts of answers while they stream.
        shows_hooks: send a line for each hook that starts and ends.
        asks_host: the host decides on calls that need confirmation.
        repeats_prompts: send the lines of the user back.
        marks_states: mark lines about the state of the session as those for the SDK only.
        hook_events: names of the events that hooks can have.
        list_models: returns the model strings that work here.
        resumes: the flags continue a recorded session.
        resumes_at: `uuid` of the answer after which it continues, "" for the last one.
    """

    servers: tuple[str, ...] = ()
    streams_parts: bool = False
    shows_hooks: bool = False
    asks_host: bool = False
    repeats_prompts: bool = False
    marks_states: bool = True
    hook_events: Collection[str] = ()
    list_models: Callable[[], Sequence[str]] = tuple
    resumes: bool = False
    resumes_at: str = ""


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
"""Fields of `initialize` that are used, or that state abilities of the host."""


def parse_setup(request: Mapping[str, Any], servers: Sequence[str] = ()) -> HostSetup:
    """Return the values of an `initialize` request; fields of another type are left out.

    Arguments:
        servers: names of in-process servers that the flags name.
    """
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
