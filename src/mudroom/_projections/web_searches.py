"""Web searches by providers: their blocks in the record, with the text users read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from .._core.json_values import clean_json, clean_text
from .._core.messages import ProviderBlock

# The line before the pages found by a search.
FOUND = "found:"


def make_provider_block(kind: str, data: object, text: str) -> ProviderBlock:
    """Make a provider's block; `text` is for users."""
    encoded = msgspec.json.encode(clean_json(data)).decode()
    return ProviderBlock(kind, encoded, clean_text(text).replace("\0", ""))


def describe_sources(sources: Iterable[tuple[str, str]]) -> str:
    """Describe the pages a search found by title and address, one line each."""
    return "\n".join([FOUND, *(f"{title} {url}".strip() for title, url in sources)])


def read_anthropic_step(raw: Mapping[str, Any]) -> ProviderBlock:
    """Read a block of the Messages API: a search, another step on the server, or its result."""
    kind = str(raw.get("type", ""))
    is_result = kind.endswith("_result")
    value: object = raw.get("content") if is_result else raw.get("input")
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if is_result and isinstance(value, list):
        items = cast("list[object]", value)
        pages = [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
        text = describe_sources((page.get("title", ""), page.get("url", "")) for page in pages)
    elif is_result and (kind == "web_search_tool_result" or "error_code" in fields):
        text = f"the search failed: {fields.get('error_code', 'no reason')}"
    elif not is_result and raw.get("name") == "web_search":
        text = f"searched the web: {fields.get('query', '')}"
    else:
        label = "result" if is_result else str(raw.get("name", ""))
        text = f"{label}: {msgspec.json.encode(value).decode()}"
    return make_provider_block(kind, raw, text)


def get_search_action(value: object) -> dict[str, Any]:
    """Find what a search of the Responses API did; {} if its form is unknown."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def read_responses_search(item: Mapping[str, Any]) -> ProviderBlock:
    """Read a `web_search_call` of the Responses API: a search, or a page that was opened."""
    names = ("type", "id", "status", "action")
    action = get_search_action(item.get("action"))
    queries = "; ".join(map(str, action.get("queries") or ()))
    target = action.get("query") or queries or action.get("pattern") or action.get("url") or ""
    verb = "searched the web" if action.get("type", "search") == "search" else "read the web"
    data = {name: item[name] for name in names if item.get(name) is not None}
    return make_provider_block("web_search_call", data, f"{verb}: {target}")
