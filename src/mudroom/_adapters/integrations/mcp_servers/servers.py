"""A session's MCP servers: one connection to each, shared by all runs."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import mimetypes
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...._core.json_values import get_decoder
from ...._core.messages import ImageBlock
from ...._core.ports import (
    ServerPrompt,
    ServerResource,
    ServerStatus,
    SessionServers,
    ToolContext,
)
from ...._core.tool_names import make_server_pattern, make_server_tool_name
from ...._core.tools import Tool, ToolResult
from ...._platform.private_files import replace_private_file, write_private_file
from ....errors import UnknownName
from .listing import Content, ListedTool, Listing, RunCall, ServerResult, make_tool, select_listed
from .server_connection import Connection
from .spec import MakeRedact, ServerSpec, list_secrets
from .stored_logins import LOGINS, LoginFile

log = logging.getLogger("mudroom")


class _Server:
    def __init__(self, spec: ServerSpec, connection: Connection, cached: CachedListing | None):
        self.spec = spec
        self.pattern = make_server_pattern(spec.name)
        self.connection = connection
        self.cached = cached
        self.names: list[str] = []

    @property
    def listing(self) -> Listing:
        return self.cached.listing if self.cached else Listing()


class _Redactor:
    """Replaces a server's secrets. They are collected anew each time, as errors are rare."""

    def __init__(
        self, make_redact: MakeRedact, spec: ServerSpec, environ: Mapping[str, str], logins: str
    ) -> None:
        self._make_redact = make_redact
        self._spec = spec
        self._environ = environ
        self._login_file = LoginFile(logins, spec.url)

    def note_headers(self, headers: Mapping[str, str]) -> None:
        """Also replace the values of these headers; a program may have printed them."""
        self._spec = replace(self._spec, headers=headers)

    def redact(self, text: str) -> str:
        if not text:
            return ""
        secrets = list_secrets(self._spec, self._environ)
        if self._spec.url and (login := self._login_file.load()):
            secrets |= login.list_secrets()
        return self._make_redact(secrets)(text)


class McpServers:
    """The port SessionServers: a session's servers.

    A server starts when a run first needs it. All runs share its process, except that servers
    declared by an agent run once for each run of that agent.

    Arguments:
        cache_folder: folder for the servers' listings.
        is_allowed: decides whether the session may have a tool of this name.
        make_redact: makes the function that removes a server's secrets from its errors and output.
        logs_failures: log why a server or a tool is not used; False if the caller shows it.
    """

    def __init__(
        self,
        specs: Sequence[ServerSpec],
        *,
        folder: str,
        environ: Mapping[str, str],
        cache_folder: str,
        is_allowed: Callable[[str], bool],
        parse_image: ParseImage,
        make_redact: MakeRedact,
        logs_failures: bool = True,
    ) -> None:
        self.tools: dict[str, Tool] = {}
        self._cache = ListingCache(cache_folder)
        self._is_allowed = is_allowed
        self._parse_image = parse_image
        self._logs_failures = logs_failures
        self._servers: dict[str, _Server] = {}
        make_own = partial(
            McpServers,
            folder=folder,
            environ=environ,
            cache_folder=cache_folder,
            is_allowed=is_allowed,
            parse_image=parse_image,
            make_redact=make_redact,
            logs_failures=logs_failures,
        )
        self._own = OwnServers([spec for spec in specs if spec.agent], make_own)
        for spec in specs:
            if spec.agent:
                continue
            cached = self._cache.load(spec)
            logins = os.path.join(cache_folder, LOGINS)
            redactor = _Redactor(make_redact, spec, environ, logins)
            connection = Connection(
                spec,
                folder,
                environ,
                lambda listing, name=spec.name: self._update(name, listing),
                logins=logins,
                protocol=cached.listing.protocol if cached else "",
                logs_failures=logs_failures,
                redact=redactor.redact,
                note_headers=redactor.note_headers,
            )
            server = _Server(spec, connection, cached)
            self._servers[spec.name] = server
            self._replace_tools(server)

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(server.pattern for server in self._servers.values())

    @property
    def full_patterns(self) -> tuple[str, ...]:
        servers = self._servers.values()
        return tuple(server.pattern for server in servers if server.spec.always_load)

    @property
    def instructions(self) -> dict[str, str]:
        return {
            server.pattern: server.listing.instructions
            for server in self._servers.values()
            if server.listing.instructions
        }

    @property
    def unlisted(self) -> tuple[str, ...]:
        return tuple(server.pattern for server in self._servers.values() if not server.cached)

    async def load(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """Load the tools matching the patterns, starting servers where necessary.

        A running server lists its tools again if its last list has expired. Returns why tools are
        missing, one line per failure.
        """
        servers = [
            server
            for server in self._servers.values()
            if any(_overlaps(each, server.pattern) for each in patterns)
        ]
        steps = (
            server.connection.refresh_if_stale() if server.cached else server.connection.open()
            for server in servers
        )
        errors = await asyncio.gather(*steps, return_exceptions=True)
        lines = [str(error) for error in errors if isinstance(error, Exception)]
        return (*lines, *self._list_unknown(patterns))

    async def refresh(self) -> None:
        """Start all servers to get their current tools; `list_states` has the errors."""
        servers = self._servers.values()
        await asyncio.gather(*(each.connection.open() for each in servers), return_exceptions=True)

    def _list_unknown(self, patterns: Sequence[str]) -> list[str]:
        return [
            f"server {server.spec.name} has no tool {name}"
            for name in patterns
            if "*" not in name and not name.startswith("!") and name not in self.tools
            for server in self._servers.values()
            if server.cached and fnmatchcase(name, server.pattern)
        ]

    def list_prompts(self) -> list[ServerPrompt]:
        return [
            ServerPrompt(
                make_server_tool_name(server.spec.name, prompt.name),
                prompt.description,
                prompt.arguments,
                prompt.required,
            )
            for server in self._servers.values()
            for prompt in server.listing.prompts
        ]

    def list_resources(self) -> list[ServerResource]:
        return [
            ServerResource(server.spec.name, resource.uri, resource.title, resource.is_template)
            for server in self._servers.values()
            for resource in server.listing.resources
        ]

    async def find_prompt(self, name: str) -> ServerPrompt:
        prompts = {prompt.name: prompt for prompt in self.list_prompts()}
        if name not in prompts:
            for server in self._servers.values():
                if fnmatchcase(name, server.pattern):
                    await server.connection.open()
            prompts = {prompt.name: prompt for prompt in self.list_prompts()}
        if name not in prompts:
            raise UnknownName("prompt", name, prompts)
        return prompts[name]

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> str:
        for server in self._servers.values():
            if not fnmatchcase(name, server.pattern):
                continue
            await server.connection.open()
            for prompt in server.listing.prompts:
                if make_server_tool_name(server.spec.name, prompt.name) == name:
                    return join_text(await server.connection.get_prompt(prompt.name, arguments))
        raise UnknownName("prompt", name, [prompt.name for prompt in self.list_prompts()])

    async def read_resource(self, server: str, uri: str) -> str:
        if server not in self._servers:
            raise UnknownName("MCP server", server, self._servers)
        return join_text(await self._servers[server].connection.read_resource(uri))

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Any]) -> ToolResult:
        if server not in self._servers:
            raise UnknownName("MCP server", server, self._servers)
        found = self._servers[server]
        await found.connection.open()
        listed = {each.name: each for each in select_listed(found.spec, found.listing.tools)}
        if tool not in listed:
            raise UnknownName("tool", tool, listed, where=f"server {server}")
        result = await found.connection.call(listed[tool], arguments, str)
        return ToolResult(join_text(result.content), error=result.is_error)

    def list_states(self) -> list[ServerStatus]:
        own = [status for each in self._own.of_root.values() for status in each.list_states()]
        return own + [
            ServerStatus(
                server.spec.name,
                server.connection.state,
                server.connection.reason,
                len(server.names) if server.cached else None,
                sum(self.tools[name].definition_bytes for name in server.names),
                server.listing.protocol,
                server.connection.pid,
                server.connection.starts,
                server.connection.last_lines,
                needs_login=server.connection.needs_login,
                left_out=server.listing.fault,
            )
            for server in self._servers.values()
        ]

    async def restart(self, name: str) -> None:
        own = self._own.find(name)
        if own:
            await own.restart(name)
        else:
            await self._servers[name].connection.restart()

    def _update(self, name: str, listing: Listing) -> None:
        server = self._servers[name]
        cached = CachedListing(listing, find_changed(server.cached, listing))
        if cached != server.cached:
            self._cache.store(server.spec, cached)
            if listing.fault and self._logs_failures:
                log.warning("server %s: %s", name, listing.fault)
        server.cached = cached
        self._replace_tools(server)

    def _replace_tools(self, server: _Server) -> None:
        for name in server.names:
            del self.tools[name]
        server.names = []
        if server.cached is None:
            return
        for listed in select_listed(server.spec, server.cached.listing.tools):
            is_changed = listed.name in server.cached.changed
            tool = make_tool(server.spec, listed, self._make_call(server), is_changed=is_changed)
            if tool.name not in self.tools and self._is_allowed(tool.name):
                self.tools[tool.name] = tool
                server.names.append(tool.name)

    def _make_call(self, server: _Server) -> RunCall:
        async def run(
            context: ToolContext, listed: ListedTool, arguments: dict[str, Any]
        ) -> ToolResult:
            await server.connection.open()
            if refusal := _find_change(server, listed):
                return ToolResult(refusal, error=True)
            self._approve(server, listed.name)
            show = LineLimit(context.show_progress).show
            with _use_span(context.traceparent):
                result = await server.connection.call(listed, arguments, show, context.ask_user)
            return make_tool_result(result, context, self._parse_image)

        return run

    def _approve(self, server: _Server, tool: str) -> None:
        """Accept a changed tool, because the user has approved a call to it."""
        cached = server.cached
        if cached and tool in cached.changed:
            changed = tuple(name for name in cached.changed if name != tool)
            server.cached = replace(cached, changed=changed)
            self._cache.store(server.spec, server.cached)
            self._replace_tools(server)

    def open_own(self, agent: str, *, is_root: bool) -> SessionServers | None:
        return self._own.open(agent, is_root=is_root)

    async def close(self) -> None:
        ends = (server.connection.close() for server in self._servers.values())
        await asyncio.gather(self._own.close(), *ends)


def _find_change(server: _Server, tool: ListedTool) -> str:
    """Explain why a tool cannot be called as listed; "" if it can."""
    now = next((each for each in server.listing.tools if each.name == tool.name), None)
    if now is None:
        return f"server {server.spec.name} has no tool {tool.name} any more."
    if (now.description, now.parameters) == (tool.description, tool.parameters):
        return ""
    return (
        f"server {server.spec.name} has changed the description of {tool.name}. "
        "Call it again: the user must approve the tool."
    )


def _overlaps(pattern: str, server: str) -> bool:
    """Return whether a pattern may match tools of a server, given by its own pattern."""
    return fnmatchcase(pattern, server) or fnmatchcase(server, pattern)


@contextmanager
def _use_span(traceparent: str) -> Generator[None]:
    """Make a span OpenTelemetry's current one, so that the package `mcp` passes it on."""
    if not traceparent:
        yield
        return
    from opentelemetry.context import attach, detach
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    token = attach(TraceContextTextMapPropagator().extract({"traceparent": traceparent}))
    try:
        yield
    finally:
        detach(token)


LINE_SECONDS = 0.25  # minimum time between a call's progress lines


class LineLimit:
    """Limits how often a call shows a progress line; lines that come too soon are dropped."""

    def __init__(
        self, show_line: Callable[[str], object], now: Callable[[], float] | None = None
    ) -> None:
        self._show_line = show_line
        self._now = now or asyncio.get_running_loop().time
        self._next = 0.0

    def show(self, line: str) -> None:
        now = self._now()
        if now >= self._next:
            self._next = now + LINE_SECONDS
            self._show_line(line)


class OwnServers:
    """Servers declared by agents, started separately for each run."""

    def __init__(
        self, specs: Sequence[ServerSpec], make: Callable[[Sequence[ServerSpec]], SessionServers]
    ) -> None:
        # The servers of root runs, by agent; they stay open for the next prompt.
        self.of_root: dict[str, SessionServers] = {}
        self._make = make
        self._specs: dict[str, list[ServerSpec]] = {}
        for spec in specs:
            self._specs.setdefault(spec.agent, []).append(replace(spec, agent=""))
        self._opened: WeakSet[SessionServers] = WeakSet()

    def open(self, agent: str, *, is_root: bool) -> SessionServers | None:
        if agent not in self._specs:
            return None
        if is_root and agent in self.of_root:
            return self.of_root[agent]
        servers = self._make(self._specs[agent])
        self._opened.add(servers)
        if is_root:
            self.of_root[agent] = servers
        return servers

    def find(self, name: str) -> SessionServers | None:
        return next(
            (
                servers
                for agent, servers in self.of_root.items()
                if any(spec.name == name for spec in self._specs[agent])
            ),
            None,
        )

    async def close(self) -> None:
        await asyncio.gather(*(servers.close() for servers in list(self._opened)))


ParseImage = Callable[[bytes], ImageBlock | str]
"""Reads an image file; returns the reason if it cannot be sent to models."""


def make_tool_result(
    result: ServerResult, context: ToolContext, parse_image: ParseImage
) -> ToolResult:
    # All bytes, even of images, are also stored as files: this model or a later one may not take
    # images.
    parts: list[str] = []
    images: list[ImageBlock] = []
    for number, part in enumerate(result.content, start=1):
        if not part.data:
            parts.append(part.text)
            continue
        stored = _store(part, context, number)
        image = parse_image(part.data) if part.media_type.startswith("image/") else None
        if isinstance(image, ImageBlock):
            images.append(image)
        elif image:
            stored += f"; the image cannot be shown to you: {image}"
        parts.append(f"[{stored}]")
    has_text = any(part.text for part in result.content)
    if not has_text and result.structured is not None:
        parts.insert(0, msgspec.json.encode(result.structured).decode())
    text = "\n".join(filter(None, parts)) or "(no output)"
    return ToolResult(text, error=result.is_error, images=tuple(images))


def join_text(parts: Iterable[Content]) -> str:
    """Join parts' texts for a prompt, with a line in place of bytes."""
    texts = (
        f"[{part.media_type}, {len(part.data):,} bytes: left out]" if part.data else part.text
        for part in parts
    )
    return "\n\n".join(filter(None, texts))


def _store(part: Content, context: ToolContext, number: int) -> str:
    ending = mimetypes.guess_extension(part.media_type) or ".bin"
    created = Path(context.spill_path(f"content{number}"))
    path = created.with_suffix(ending)
    write_private_file(path, part.data)
    if path != created:
        created.unlink()
    return f"{part.media_type}, {len(part.data):,} bytes, in {path}"


class CachedListing(Struct, frozen=True):
    """A listing, and changed tools that no user has approved since."""

    listing: Listing
    changed: tuple[str, ...] = ()


class ListingCache:
    """A cache of listings, with one file per server configuration."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def load(self, spec: ServerSpec) -> CachedListing | None:
        try:
            return get_decoder(CachedListing).decode(self._locate(spec).read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None

    def store(self, spec: ServerSpec, cached: CachedListing) -> None:
        with suppress(OSError):
            replace_private_file(self._locate(spec), msgspec.json.encode(cached))

    def _locate(self, spec: ServerSpec) -> Path:
        # Variables and headers do not count, because they hold changing tokens.
        facts = (spec.name, spec.transport, spec.command, spec.args, spec.cwd, spec.url)
        digest = hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:32]
        return self._folder / f"{digest}.json"


def find_changed(before: CachedListing | None, after: Listing) -> tuple[str, ...]:
    if before is None:
        return ()
    old = {tool.name: tool for tool in before.listing.tools}
    return tuple(
        tool.name
        for tool in after.tools
        if tool.name in before.changed
        or (
            tool.name in old
            and (tool.description, tool.parameters)
            != (old[tool.name].description, old[tool.name].parameters)
        )
    )
