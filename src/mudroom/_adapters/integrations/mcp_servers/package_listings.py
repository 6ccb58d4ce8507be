"""Lists what a server offers with the package `mcp`: tools, prompts and resources, all pages.

Import this module late, because it imports the package.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import mcp_types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from .listing import ListedPrompt, ListedResource, ListedTool, Listing
from .package_client import describe_error, is_lost

# A server can return a cursor for ever.
MAX_PAGES = 50
# Of each kind: tools, prompts, resources, and templates of resources.
MAX_ITEMS = 2_000

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
    """List the items of all pages, up to the limits.

    Arguments:
        load: returns the page for a cursor.
        noun: what to call the items.
        faults: receives a line if items are left out.
        is_optional: if the server refuses a page, keep those before it instead of failing.
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


def _convert_tool(tool: mcp_types.Tool) -> ListedTool:
    notes = tool.annotations
    return ListedTool(
        tool.name,
        tool.description or tool.title or "",
        tool.input_schema,
        bool(notes and notes.read_only_hint),
        bool(notes and notes.idempotent_hint),
    )
