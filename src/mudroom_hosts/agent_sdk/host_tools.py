"""Tools the host runs itself: its in-process MCP servers, reached through the channel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from mudroom import Effect, ImageBlock, Tool, ToolResult, __version__
from mudroom.ports import parse_sendable_image, time_limit

from ..json_values import as_bytes, as_list, as_object, as_text
from .channel import ControlChannel, HostError

PROTOCOL_VERSION = "2025-11-25"
"""MCP revision that agent SDKs speak with their in-process servers."""

_HANDSHAKE_SECONDS = 10.0
_MAX_PAGES = 100


class HostToolSource:
    """The ToolSource for one of the host's in-process servers.

    The host may send its answers to `initialize` and `tools/list` ahead, as its manifest.
    """

    def __init__(self, channel: ControlChannel, name: str, manifest: object = None) -> None:
        self.name = name
        self.fault = ""
        self.server_info: dict[str, Any] = {}
        self._channel = channel
        self._numbers = count(1)
        self._tools: tuple[Tool, ...] | None = None
        self._changed = asyncio.Event()
        self._settled: asyncio.Event | None = None
        self.is_enabled = True
        self.has_manifest = self._use_manifest(as_object(manifest))

    @property
    def tool_names(self) -> list[str]:
        prefix = len(f"mcp__{self.name}__")
        return [tool.name[prefix:] for tool in self._tools or ()]

    async def open(self) -> None:
        if self._tools is None:
            await self.connect()

    async def connect(self) -> None:
        self.fault = ""
        try:
            async with time_limit(_HANDSHAKE_SECONDS):
                await self._greet()
                self._tools = await self._list_tools()
        except TimeoutError:
            self.fault = f"it did not answer within {_HANDSHAKE_SECONDS:.0f} s"
            raise TimeoutError(self.fault) from None
        except HostError as error:
            self.fault = str(error)
            raise

    async def list(self) -> Sequence[Tool]:
        """List the server's current tools; after a failure, those it last had."""
        if self._changed.is_set():
            self._changed.clear()
            try:
                self._tools = await self._list_tools()
            except HostError as error:
                self.fault = str(error)
        return self._tools or () if self.is_enabled else ()

    async def wait_for_change(self) -> None:
        self._settled = self._settled or asyncio.Event()
        if not self._changed.is_set():
            self._settled.set()
        await self._changed.wait()

    async def close(self) -> None:
        pass  # the host ends its servers itself

    def mark_changed(self) -> None:
        self._changed.set()
        if self._settled:
            self._settled.clear()

    async def settle(self) -> None:
        """Wait, but not forever, until the session has the tools from the last change."""
        if self._settled is None:  # no session follows changes: opening the source failed
            return
        with suppress(TimeoutError):
            async with time_limit(_HANDSHAKE_SECONDS):
                await self._settled.wait()

    def _use_manifest(self, manifest: Mapping[str, Any]) -> bool:
        """Take greeting and tools from a manifest. Return False if it is incomplete."""
        greeting = as_object(manifest.get("initializeResult"))
        tools = as_object(manifest.get("toolsListResult")).get("tools")
        if not greeting or tools is None:
            return False
        self.server_info = as_object(greeting.get("serverInfo"))
        self._tools = self._make_tools(as_list(tools))
        return True

    async def _greet(self) -> None:
        parameters = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "mudroom", "version": __version__},
        }
        greeting = await self._call("initialize", parameters)
        self.server_info = as_object(greeting.get("serverInfo"))
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._channel.request("mcp_message", server_name=self.name, message=message)

    async def _list_tools(self) -> tuple[Tool, ...]:
        entries: list[Any] = []
        cursor: object = None
        for _ in range(_MAX_PAGES):
            page = await self._call("tools/list", {"cursor": cursor} if cursor else {})
            entries += as_list(page.get("tools"))
            cursor = page.get("nextCursor")
            if not cursor:
                break
        return self._make_tools(entries)

    def _make_tools(self, entries: Sequence[Any]) -> tuple[Tool, ...]:
        described = [entry for entry in map(as_object, entries) if as_text(entry.get("name"))]
        return tuple({entry["name"]: self._make_tool(entry) for entry in described}.values())

    def _make_tool(self, entry: Mapping[str, Any]) -> Tool:
        name = str(entry["name"])
        schema = as_object(entry.get("inputSchema"))
        is_pure = as_object(entry.get("annotations")).get("readOnlyHint") is True

        async def run(_: object, arguments: dict[str, Any]) -> ToolResult:
            result = await self._call("tools/call", {"name": name, "arguments": arguments})
            return convert_result(result)

        return Tool(
            name=f"mcp__{self.name}__{name}",
            description=str(entry.get("description") or entry.get("title") or name),
            parameters={"type": "object", **schema},
            parse=dict,
            run=run,
            effect=Effect.PURE if is_pure else Effect.EFFECTFUL,
        )

    async def _call(self, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        message = {
            "jsonrpc": "2.0",
            "id": next(self._numbers),
            "method": method,
            "params": dict(parameters),
        }
        response = await self._channel.request(
            "mcp_message", server_name=self.name, message=message
        )
        answer = as_object(response.get("mcp_response"))
        if not answer:
            raise HostError(f"the server {self.name} gave no answer to {method}")
        if error := answer.get("error"):
            text = str(as_object(error).get("message") or error)
            raise HostError(text, where=f"server {self.name}, {method}")
        return as_object(answer.get("result"))


def convert_result(result: Mapping[str, Any]) -> ToolResult:
    texts: list[str] = []
    images: list[ImageBlock] = []
    for block in as_list(result.get("content")):
        _add_block(as_object(block), texts, images)
    structured = result.get("structuredContent")
    if structured is not None and not texts:
        texts.append(json.dumps(structured, ensure_ascii=False))
    is_error = result.get("isError") is True or result.get("is_error") is True
    text = "\n".join(texts) or ("" if images else "(no output)")
    return ToolResult(text, error=is_error, images=tuple(images))


def _add_block(block: dict[str, Any], texts: list[str], images: list[ImageBlock]) -> None:
    match block.get("type"):
        case "text":
            texts.append(str(block.get("text", "")))
        case "image":
            _add_image(block, texts, images)
        case "resource_link":
            texts.append(f"[resource: {block.get('name', '')} {block.get('uri', '')}]")
        case "resource":
            resource = as_object(block.get("resource"))
            texts.append(str(resource.get("text") or f"[resource: {resource.get('uri', '')}]"))
        case kind:
            texts.append(f"[content of type {kind}, which models do not get]")


def _add_image(block: dict[str, Any], texts: list[str], images: list[ImageBlock]) -> None:
    image = parse_sendable_image(as_bytes(block.get("data")))
    if image:
        images.append(image)
    else:
        texts.append("[an image that is too large or not complete]")
