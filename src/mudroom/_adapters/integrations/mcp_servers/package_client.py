"""The client of the package `mcp`, using mudroom's values.

Import this module late and in a thread: it imports the package, which takes about a second.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import httpx2
import mcp_types
from mcp.client._transport import Transport, TransportStreams
from mcp.client.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from ...._core.ports.approval import InputForm
from ...._version import __version__
from .body_limit import UNCOMPRESSED, limit_bodies
from .listing import Content, ListedPrompt, ListedResource, ListedTool, Listing, ServerResult
from .oauth import LoginProvider, find_lacking_scope, make_login_remedy
from .open_calls import InputReply
from .spec import ServerSpec
from .stdio_transport import StdioTransport
from .stored_logins import LoginFile

__all__ = ["Client", "MCPError", "StdioTransport"]

_CONNECT_SECONDS = 30.0
_READ_SECONDS = 3_600.0
"""Seconds an open response may go without a byte; the connection sets the limits of calls."""
_LOST_CODES = (mcp_types.CONNECTION_CLOSED,)
_LOST_SESSION = "Session terminated"  # the package's text for HTTP 404 in a session
_UNREADABLE_EVENT = "SSE stream failed"
"""Start of the package's text for an event that is too long or malformed."""
_SESSION_HEADER = "mcp-session-id"
_CHANGES = (
    mcp_types.ToolListChangedNotification,
    mcp_types.PromptListChangedNotification,
    mcp_types.ResourceListChangedNotification,
)

logging.getLogger("mcp").addHandler(logging.NullHandler())  # or Python prints to the terminal


class HttpTransport:
    def __init__(self, spec: ServerSpec, headers: Mapping[str, str], logins: str) -> None:
        self.fault = ""  # the server's refusal, which the package does not pass on
        self.has_lost_session = False
        self.needs_login = False  # according to the server's last answer
        self._name = spec.name
        file = LoginFile(logins, spec.url)
        has_own = "authorization" in {name.lower() for name in headers}
        self._auth = LoginProvider(spec, file) if file.load() and not has_own else None
        self._url = spec.url
        self._headers = dict(headers)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[TransportStreams]:
        async with httpx2.AsyncClient(
            headers={**UNCOMPRESSED, **self._headers},
            auth=self._auth,
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS),
            event_hooks={"response": [limit_bodies(self._set_fault), self._note_refusal]},
        ) as http:
            async with streamable_http_client(self._url, http_client=http) as streams:
                yield streams

    def _set_fault(self, fault: str) -> None:
        self.fault = fault

    async def _note_refusal(self, response: httpx2.Response) -> None:
        status = response.status_code
        if str(response.request.url) != self._url:
            if status >= 500 or status == 429:
                self.fault = f"the login server answered HTTP {status}"
        elif status in (401, 403):
            self.needs_login = True
            scope = find_lacking_scope(response)
            rights = "" if scope is None else f" with more rights {scope}".rstrip()
            remedy = make_login_remedy(self._name, scope)
            self.fault = (
                f"HTTP {status}: it wants a login{rights}. {remedy} (or set a token or headers)"
            )
        elif status == 404 and _SESSION_HEADER in response.request.headers:
            await self._note_lost_session(response)
        elif status >= 500:
            self.fault = f"HTTP {status}"
        elif status < 400:
            self.fault = ""
            self.needs_login = False

    async def _note_lost_session(self, response: httpx2.Response) -> None:
        # Some servers say so in JSON, with their own errors. The package would take that for the
        # call's answer, so it must not see the JSON.
        body = await response.aread()
        if f"{mcp_types.METHOD_NOT_FOUND}".encode() not in body:
            self.has_lost_session = True
            response.headers["content-type"] = "text/plain"


def make_client(
    server: str,
    transport: Transport,
    folder: str,
    on_tools_changed: Callable[[], object],
    on_sign_of_life: Callable[[], object],
    answer_question: Callable[[InputForm], Awaitable[InputReply]],
    *,
    known_protocol: str = "",
) -> Client:
    """Make a client for a transport. It speaks both eras of the protocol.

    Arguments:
        folder: the workspace; servers of the old era may ask for it.
        on_sign_of_life: called for each line of the server's log.
        known_protocol: revision of the last connection, "" to ask the server. Servers of the old
            era are not asked again: some take ten seconds to say nothing.
    """

    async def handle_message(message: object) -> None:
        if isinstance(message, _CHANGES):
            on_tools_changed()
        elif isinstance(message, mcp_types.LoggingMessageNotification):
            on_sign_of_life()

    async def elicit(
        context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult:
        if isinstance(params, mcp_types.ElicitRequestURLParams):
            form = InputForm(server, params.message, url=params.url)
        else:
            form = InputForm(server, params.message, params.requested_schema)
        reply = await answer_question(form)
        return mcp_types.ElicitResult(action=reply.action, content=reply.values)

    async def list_roots(context: ClientRequestContext) -> mcp_types.ListRootsResult:
        uri = Path(folder).as_uri()
        return mcp_types.ListRootsResult(
            roots=[mcp_types.Root.model_validate({"uri": uri, "name": os.path.basename(folder)})]
        )

    return Client(
        transport,
        client_info=mcp_types.Implementation(name="mudroom", version=__version__),
        message_handler=handle_message,
        list_roots_callback=list_roots,
        elicitation_callback=elicit,
        cache=None,
        mode="legacy" if known_protocol in HANDSHAKE_PROTOCOL_VERSIONS else "auto",
    )


async def get_prompt(client: Client, name: str, arguments: Mapping[str, str]) -> list[Content]:
    result = await client.get_prompt(name, dict(arguments))
    return [_convert_content(message.content) for message in result.messages]


async def read_resource(client: Client, uri: str) -> list[Content]:
    result = await client.read_resource(uri)
    return [
        Content(each.text)
        if isinstance(each, mcp_types.TextResourceContents)
        else _decode(each.blob, each.mime_type or "application/octet-stream")
        for each in result.contents
    ]


async def call_tool(
    client: Client,
    name: str,
    arguments: dict[str, Any],
    on_progress: Callable[[str], object],
) -> ServerResult:
    async def report(progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
        on_progress(f"{share}: {message}" if message else share)

    # If the caller is cancelled, the package tells the server.
    result = await client.call_tool(name, arguments, progress_callback=report)
    content = tuple(map(_convert_content, result.content))
    return ServerResult(content, result.structured_content, result.is_error)


def _convert_content(block: mcp_types.ContentBlock) -> Content:
    if isinstance(block, mcp_types.TextContent):
        return Content(block.text)
    if isinstance(block, mcp_types.ResourceLink):
        return Content(f"{block.uri} ({block.title or block.name})")
    if isinstance(block, mcp_types.EmbeddedResource):
        resource = block.resource
        if isinstance(resource, mcp_types.TextResourceContents):
            return Content(f"{resource.uri}:\n{resource.text}")
        return _decode(resource.blob, resource.mime_type or "application/octet-stream")
    return _decode(block.data, block.mime_type)


def _decode(data: str, media_type: str) -> Content:
    try:
        return Content(media_type=media_type, data=base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return Content(f"[{media_type}: the server sent no valid base64]")


def is_lost(error: Exception) -> bool:
    if isinstance(error, MCPError):
        if error.error.message.startswith(_UNREADABLE_EVENT):
            return False  # one answer's stream: others have their own
        return error.error.code in _LOST_CODES or is_session_lost(error)
    return isinstance(error, httpx2.TransportError | OSError)


def is_session_lost(error: Exception) -> bool:
    return isinstance(error, MCPError) and error.error.message == _LOST_SESSION


def is_refusal(error: Exception) -> bool:
    """Return whether an error is an answer from the server, which is still running."""
    if isinstance(error, ExceptionGroup):
        return is_refusal(cast("ExceptionGroup[Exception]", error).exceptions[0])
    return isinstance(error, MCPError) and not is_lost(error)


def describe_error(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):
        return describe_error(cast("ExceptionGroup[Exception]", error).exceptions[0])
    if is_session_lost(error):
        return "it has forgotten the session (HTTP 404)"
    if isinstance(error, MCPError):
        data = f" {json.dumps(error.error.data)}" if error.error.data else ""
        return f"{error.error.message}{data}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


async def listen_for_changes(client: Client, on_tools_changed: Callable[[], object]) -> None:
    """Report tool changes of a modern server until the caller cancels."""
    tools = client.server_capabilities.tools
    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (
        tools and tools.list_changed
    ):
        return
    async with client.listen(tools_list_changed=True) as changes:
        async for _ in changes:
            on_tools_changed()


MAX_PAGES = 50  # a server could return cursors forever
MAX_ITEMS = 2_000  # of each kind: tools, prompts, resources, and resource templates

Item = TypeVar("Item")


class _Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


Page = TypeVar("Page", bound=_Page)


async def list_offers(client: Client) -> Listing:
    """List everything a server offers; prompts and resources are left out if they fail."""
    capabilities = client.server_capabilities
    tools: list[ListedTool] = []
    faults: list[str] = []
    times: list[int] = []
    if capabilities.tools is not None:

        def take(page: mcp_types.ListToolsResult) -> list[mcp_types.Tool]:
            times.append(page.ttl_ms)
            return page.tools

        listed = await _list_pages(
            lambda cursor: client.list_tools(cursor=cursor), take, "tools", faults
        )
        first_by_name: dict[str, mcp_types.Tool] = {}
        for tool in listed:
            first_by_name.setdefault(tool.name, tool)
        # Servers without the capability never get tasks, whatever their tools say.
        if capabilities.tasks is not None:
            only_as_task = [name for name, tool in first_by_name.items() if _needs_task(tool)]
            for name in only_as_task:
                del first_by_name[name]
                faults.append(f"the tool {name} works only as a task, which mudroom does not start")
        tools = [_convert_tool(tool) for tool in first_by_name.values()]
    prompts: list[ListedPrompt] = []
    resources: list[ListedResource] = []
    if capabilities.prompts is not None:
        prompts = await _list_prompts(client, faults)
    if capabilities.resources is not None:
        resources = await _list_resources(client, faults)
    if capabilities.tools is None and not prompts and not resources:
        faults.append("the server has no tools")
    info = client.server_info
    is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
    return Listing(
        tuple(tools),
        client.instructions or "",
        f"{info.name} {info.version}".strip() if info else "",
        client.protocol_version,
        "; ".join(faults),
        tuple(prompts),
        tuple(resources),
        min(times) / 1000 if times and is_modern else None,
    )


async def _list_pages(
    load: Callable[[str | None], Awaitable[Page]],
    get_items: Callable[[Page], list[Item]],
    noun: str,
    faults: list[str],
    *,
    is_optional: bool = False,
) -> list[Item]:
    """List the items of all pages up to the limits; add a line to `faults` if any are left out.

    If the server refuses a page of an optional list, earlier pages are kept.
    """
    items: list[Item] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        try:
            page = await load(cursor)
        except MCPError as error:
            if not is_optional or is_lost(error):
                raise
            if cursor:
                cause = describe_error(error)
                faults.append(f"the list of {noun} broke off after {len(items)}: {cause}")
            return items
        items += get_items(page)
        cursor = page.next_cursor
        if not cursor or len(items) > MAX_ITEMS:
            break
    if cursor or len(items) > MAX_ITEMS:
        del items[MAX_ITEMS:]
        faults.append(f"the server lists more than {len(items)} {noun}; the others are not used")
    return items


async def _list_prompts(client: Client, faults: list[str]) -> list[ListedPrompt]:
    prompts = await _list_pages(
        lambda cursor: client.list_prompts(cursor=cursor),
        lambda page: page.prompts,
        "prompts",
        faults,
        is_optional=True,
    )
    return [
        ListedPrompt(
            prompt.name,
            prompt.description or prompt.title or "",
            tuple(each.name for each in prompt.arguments or ()),
            tuple(each.name for each in prompt.arguments or () if each.required),
        )
        for prompt in prompts
    ]


async def _list_resources(client: Client, faults: list[str]) -> list[ListedResource]:
    resources = await _list_pages(
        lambda cursor: client.list_resources(cursor=cursor),
        lambda page: page.resources,
        "resources",
        faults,
        is_optional=True,
    )
    templates = await _list_pages(
        lambda cursor: client.list_resource_templates(cursor=cursor),
        lambda page: page.resource_templates,
        "templates of resources",
        faults,
        is_optional=True,
    )
    listed = [ListedResource(str(each.uri), each.title or each.name) for each in resources]
    return listed + [
        ListedResource(each.uri_template, each.title or each.name, is_template=True)
        for each in templates
    ]


def _needs_task(tool: mcp_types.Tool) -> bool:
    return tool.execution is not None and tool.execution.task_support == "required"


def _convert_tool(tool: mcp_types.Tool) -> ListedTool:
    notes = tool.annotations
    return ListedTool(
        tool.name,
        tool.description or tool.title or "",
        tool.input_schema,
        bool(notes and notes.read_only_hint),
        bool(notes and notes.idempotent_hint),
    )
