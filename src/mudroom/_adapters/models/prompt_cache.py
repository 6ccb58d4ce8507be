"""A simulator of Anthropic's, OpenAI's and Google's prompt caches.

Chat Completions with Anthropic's marks, as used by OpenRouter and Alibaba, follow Anthropic's
rules.

It reads request bodies and computes what the provider would have read from its cache and written to
it, by the rules in the providers' documentation. Tokens are estimated at four bytes each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, cast

from msgspec import Struct

from ..._core.messages import CHARACTERS_PER_TOKEN, Usage
from ..._projections.cache_use import find_smallest_prompt

_MINUTE = 60.0
_HOUR = 3600.0
# Anthropic's limit.
MAX_MARKS = 4
# Blocks, including the one with the mark.
LOOK_BACK = 20
# OpenAI, from gpt-5.6 on: breakpoints compared with the cache.
_MAX_BREAKPOINTS = 80
# OpenAI, before that: tokens per step in which a prefix is read.
_STEP = 128


class PromptCache:
    """A provider's cache, for all conversations that share an account.

    Arguments:
        dialect: "anthropic", "openai", "openai-responses" or "google".
        writes_cost: true for OpenAI's models from gpt-5.6 on, which write only at breakpoints and
            bill it.

    Example:
        cache = PromptCache("anthropic")
        usage = cache.send(b'{"model": "claude-sonnet-5-5", "messages": []}', now=0.0)
        usage.cache_read_tokens == 0
    """

    def __init__(self, dialect: str, *, writes_cost: bool = False) -> None:
        self._dialect = dialect
        self._writes_cost = writes_cost
        self._expires: dict[bytes, float] = {}
        self._lifetimes: dict[bytes, float] = {}

    def send(self, body: bytes, now: float, model: str = "") -> Usage:
        """Compute a request's input tokens, and update the cache as its answer begins.

        Raises ValueError for cache marks that Anthropic refuses.

        Arguments:
            body: the JSON of the request.
            now: seconds; only need to grow.
            model: its name if the body has none, as with Google.
        """
        fields: dict[str, Any] = json.loads(body)
        model = fields.get("model") or model
        is_marked = self._dialect == "openai" and b'"cache_control"' in body
        dialect = "marked" if is_marked else self._dialect
        blocks = list(_SPLIT[dialect](fields))
        prefix = _Prefix(blocks, f"{model}{fields.get('prompt_cache_key', '')}")
        if dialect in _MARKED_DIALECTS:
            if fields.get("cache_control") and blocks:
                # Automatic caching: the API places the mark.
                blocks[-1].mark = _read_mark(fields)
            _check_marks(blocks)
            reads = _list_anthropic_reads(blocks)
            writes = {place: block.mark for place, block in enumerate(blocks) if block.mark}
        elif dialect != "google" and self._writes_cost:
            marked = [place for place, block in enumerate(blocks) if block.mark]
            inputs = [place for place, block in enumerate(blocks) if block.is_input]
            # The ends of earlier requests also count as breakpoints.
            places = sorted({*marked, *inputs})
            reads = [place for place in places if prefix.keys[place] in self._expires]
            reads = reads[-_MAX_BREAKPOINTS:]
            writes = dict.fromkeys([*marked[-3:], *inputs[-1:]], 30 * _MINUTE)
        else:
            reads = list(range(len(blocks)))
            life = 5 * _MINUTE if dialect == "google" else 10 * _MINUTE
            writes = dict.fromkeys(reads, life)
        smallest = find_smallest_prompt(model)
        hit = self._find_longest(prefix, reads, smallest, now)
        read = prefix.sizes[hit] if hit is not None else 0
        if dialect.startswith("openai") and not self._writes_cost:
            read -= read % _STEP
        bills = dialect in _MARKED_DIALECTS or self._writes_cost
        return self._write(prefix, writes, smallest, read, now, bills=bills)

    def _find_longest(
        self, prefix: _Prefix, places: list[int], smallest: int, now: float
    ) -> int | None:
        for place in sorted(places, reverse=True):
            key = prefix.keys[place]
            if prefix.sizes[place] >= smallest and self._expires.get(key, 0.0) > now:
                self._expires[key] = now + self._lifetimes[key]
                return place
        return None

    def _write(
        self,
        prefix: _Prefix,
        writes: dict[int, float],
        smallest: int,
        read: int,
        now: float,
        *,
        bills: bool,
    ) -> Usage:
        written = hour = 0
        end = read
        for place, lifetime in sorted(writes.items()):
            size = prefix.sizes[place]
            if size < smallest:
                continue
            key = prefix.keys[place]
            if size > end:
                written += size - end
                hour += size - end if lifetime == _HOUR else 0
                end = size
            self._lifetimes[key] = max(lifetime, self._lifetimes.get(key, 0.0))
            self._expires[key] = now + self._lifetimes[key]
        total = prefix.sizes[-1] if prefix.sizes else 0
        return Usage(
            input_tokens=total,
            cache_read_tokens=read,
            cache_write_tokens=written if bills else 0,
            cache_hour_tokens=hour,
        )


class _Block(Struct):
    """Part of a prompt. `mark`: lifetime in seconds of an entry written at its end, 0 for none."""

    data: bytes
    mark: float = 0.0
    is_input: bool = False


class _Prefix:
    """The prompts that end at each block: their identities and tokens."""

    def __init__(self, blocks: list[_Block], scope: str) -> None:
        digest = sha256(scope.encode())
        self.keys: list[bytes] = []
        self.sizes: list[int] = []
        size = 0
        for block in blocks:
            digest.update(block.data)
            size += len(block.data)
            self.keys.append(digest.digest())
            self.sizes.append(round(size / CHARACTERS_PER_TOKEN))


def _check_marks(blocks: list[_Block]) -> None:
    marks = [block.mark for block in blocks if block.mark]
    if len(marks) > MAX_MARKS:
        raise ValueError(f"{len(marks)} cache marks; at most {MAX_MARKS} are allowed")
    if marks != sorted(marks, reverse=True):
        raise ValueError("a mark for an hour comes after one for five minutes")


def _list_anthropic_reads(blocks: list[_Block]) -> list[int]:
    """List the blocks where the API looks for an entry: each mark and the blocks before it."""
    marked = [place for place, block in enumerate(blocks) if block.mark]
    starts = {place: max(0, place - LOOK_BACK + 1) for place in marked}
    return sorted({n for place, start in starts.items() for n in range(start, place + 1)})


def _make_block(value: dict[str, Any], *, is_input: bool = False) -> _Block:
    """Encode part of a prompt without its mark, which the comparison ignores."""
    mark = _read_mark(value)
    parts: Any = value.get("content") or value.get("output")
    if isinstance(parts, list) and "prompt_cache_breakpoint" in cast("list[Any]", parts)[-1]:
        mark = 30 * _MINUTE
    return _Block(_encode(_strip(value)), mark, is_input)


def _read_mark(value: dict[str, Any]) -> float:
    """Read how many seconds Anthropic keeps a mark's entry; 0 without a mark."""
    control = value.get("cache_control")
    if not control:
        return 0.0
    return _HOUR if control.get("ttl") == "1h" else 5 * _MINUTE


def _strip(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, list):
        return [_strip(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        marks = ("cache_control", "prompt_cache_breakpoint")
        fields = cast("dict[str, Any]", value)
        return {key: _strip(each) for key, each in fields.items() if key not in marks}
    return value


def _encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _split_anthropic(body: dict[str, Any]) -> Iterator[_Block]:
    for tool in body.get("tools", ()):
        yield _make_block(tool)
    system: Any = body.get("system") or []
    for block in [{"type": "text", "text": system}] if isinstance(system, str) else system:
        yield _make_block(block)
    # These change only how the messages are read.
    choice = _encode({name: body.get(name) for name in ("tool_choice", "thinking")})
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        for block in content:
            made = _make_block(block)
            made.data = choice + message["role"].encode() + made.data
            choice = b""
            yield made


def _split_chat(body: dict[str, Any]) -> Iterator[_Block]:
    yield _Block(_encode(body.get("tools") or []))
    for message in body["messages"]:
        yield _make_block(message, is_input=message["role"] in ("user", "tool"))


def _split_marked_chat(body: dict[str, Any]) -> Iterator[_Block]:
    yield _Block(_encode(body.get("tools") or []))
    for message in body["messages"]:
        content: Any = message.get("content") or []
        parts = [{"text": content}] if isinstance(content, str) else content
        for part in (*parts, *message.get("tool_calls", ())):
            made = _make_block(part)
            made.data = _encode([message["role"], message.get("tool_call_id")]) + made.data
            yield made


def _split_responses(body: dict[str, Any]) -> Iterator[_Block]:
    head: list[Any] = [body.get("tools") or [], body.get("instructions") or ""]
    yield _Block(_encode(head))
    for item in body["input"]:
        is_output = item.get("type") == "function_call_output"
        yield _make_block(item, is_input=is_output or item.get("role") == "user")


def _split_google(body: dict[str, Any]) -> Iterator[_Block]:
    yield _Block(_encode([body.get("systemInstruction"), body.get("tools")]))
    for content in body["contents"]:
        yield _make_block(content)


_MARKED_DIALECTS = frozenset({"anthropic", "marked"})
_SPLIT = {
    "anthropic": _split_anthropic,
    "marked": _split_marked_chat,
    "openai": _split_chat,
    "openai-responses": _split_responses,
    "google": _split_google,
}
