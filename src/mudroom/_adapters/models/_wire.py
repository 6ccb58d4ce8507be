"""The common part of all models behind HTTP, whatever their wire."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ..._core.budgets import choose_smaller
from ..._core.messages import (
    AssistantBlock,
    AssistantMessage,
    Message,
    ProviderBlock,
    StopReason,
    TextBlock,
    ToolResultBlock,
    join_texts,
    resolve_stop_reason,
)
from ..._core.ports import RequestConfig, RetryNotice, StreamChunk
from ..._core.tools import Tool
from ...errors import ModelRefused
from ._errors import NO_TOOLS_REMEDY, RequestFailure, strip_url
from ._http import HttpClient, Remedy, StreamReader
from ._images import replace_unsent_images
from ._json import clean, encode
from ._tool_names import ToolNames
from ._written_calls import WRITTEN_CALL, find_written_call
from .model_facts import ModelFacts, find_facts, remember_facts

log = logging.getLogger("mudroom")

# A prefix holds the system prompt and all tool schemas, often tens of kilobytes.
_MAX_CACHED_PREFIXES = 32
_SAMPLING = ("temperature", "top_p")
CACHE_KEY = "prompt_cache_key"
# Default output limit in tokens if the server reports its window, which also bounds answers.
_SERVED_MAX_OUTPUT = 32_000
# Stop reason of an answer the provider refused because of its calls (Groq).
REFUSED_CALLS = "tool_use_failed"
# Consecutive refusals reported to the model before the run fails.
_MAX_REFUSED_ANSWERS = 3


class RequestPrefix(Struct, frozen=True):
    """The bytes at the start of each request of a conversation, and its tool names on the wire."""

    data: bytes
    names: ToolNames
    config: RequestConfig
    facts: ModelFacts  # as known when the bytes were made
    # The bytes with the last requested output limit. Children request the same one every turn.
    limited: dict[int, bytes] = field(default_factory=dict[int, bytes])


class WireModel(ABC):
    """A model that mudroom itself talks to over HTTP.

    Arguments:
        key: sent in a header; "" sends none, as local servers expect.
        base_url: the URL up to the wire's own path.
        name: the model string; by default "wire:model".
        takes_images: false sends placeholders.
        takes_tools: false makes a request with tools fail before it is sent.
        context_window: in tokens, as reported by the server; 0 if unknown.
    """

    WIRE: str
    BASE_URL: str  # of the provider that defines the wire
    TOOLS_OFF: bytes  # the JSON field that forbids tool calls
    # Tools run by the provider, by name, in the wire's form.
    PROVIDER_TOOLS: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    HAS_SYSTEM_MESSAGE = False  # true where the system prompt is sent as the first message

    def __init__(
        self,
        model: str,
        *,
        http: HttpClient,
        key: str = "",
        base_url: str = "",
        headers: Mapping[str, str] | None = None,
        name: str = "",
        takes_images: bool = True,
        takes_tools: bool = True,
        context_window: int = 0,
    ) -> None:
        self.model = self.normalize_model(model)
        self.http = http
        self.name = name or f"{self.WIRE}:{self.model}"
        self.base_url = (base_url or self.BASE_URL).rstrip("/")
        self.url = self.build_url(self.base_url)
        self.headers = {"Content-Type": "application/json", **self.build_auth_headers(key)}
        self.headers.update(headers or {})
        self.takes_images = takes_images
        self.takes_tools = takes_tools
        self.facts = find_facts(self.model, self.base_url)
        if context_window:
            self.facts = replace(
                self.facts, context_window=context_window, max_output=_SERVED_MAX_OUTPUT
            )
        self._prefixes: dict[object, RequestPrefix] = {}
        self.unsent: set[str] = set()

    def start_conversation(self, config: RequestConfig) -> WireConversation:
        conversation = self.make_conversation(config)
        if self.HAS_SYSTEM_MESSAGE and (system := clean(config.system)):
            conversation.append_entry({"role": "system", "content": system})
        return conversation

    def make_conversation(self, config: RequestConfig) -> WireConversation:
        return WireConversation(self, config)

    async def close(self) -> None:
        await self.http.close()

    def get_prefix(self, config: RequestConfig) -> RequestPrefix:
        """Return a config's prefix, shared by all runs of an agent."""
        key = (
            config.system,
            # By identity, which is quick. A cached prefix keeps its tools alive, so an id cannot be
            # reused while it is in the cache.
            tuple(map(id, config.tools)),
            config.temperature,
            config.top_p,
            config.max_tokens,
            config.provider_tools,
            config.effort,
            config.cache_key,
        )
        prefix = self._prefixes.get(key)
        if prefix is None:
            if len(self._prefixes) >= _MAX_CACHED_PREFIXES:
                oldest = next(iter(self._prefixes))
                del self._prefixes[oldest]
            names = ToolNames(tool.name for tool in config.tools)
            data = self.encode_prefix(self.fit_config(config), names)
            prefix = RequestPrefix(data, names, config, self.facts)
            self._prefixes[key] = prefix
            warn_unsent_sampling(self.name, config, self.facts, self.unsent)
        return prefix

    def fit_config(self, config: RequestConfig) -> RequestConfig:
        if "pattern" not in self.facts.refused:
            return config
        from .refusals.repairs import remove_patterns  # only a refusal needs it

        tools = [
            replace(tool, parameters=remove_patterns(tool.parameters)) for tool in config.tools
        ]
        return replace(config, tools=tuple(tools))

    def change_facts(self, facts: ModelFacts) -> None:
        """Use these facts from now on, also in later sessions of this process."""
        self.facts = facts
        self._prefixes.clear()
        remember_facts(self.model, self.base_url, facts)

    @property
    def provider_tools(self) -> tuple[str, ...]:
        return tuple(name for name in self.PROVIDER_TOOLS if name in self.facts.provider_tools)

    def get_effort(self, config: RequestConfig) -> str | None:
        takes_effort = self.facts.takes_effort and "effort" not in self.facts.refused
        return config.effort if takes_effort else None

    def encode_cache_key(self, config: RequestConfig) -> dict[str, str]:
        """Encode the cache key, if the host takes one. It is hashed: OpenAI takes 64 characters."""
        if not (config.cache_key and self.facts.takes_cache_key) or CACHE_KEY in self.facts.refused:
            return {}
        return {CACHE_KEY: sha256(config.cache_key.encode()).hexdigest()[:32]}

    def encode_provider_tools(self, config: RequestConfig) -> list[dict[str, Any]]:
        names = [name for name in config.provider_tools if name in self.provider_tools]
        return [dict(self.PROVIDER_TOOLS[name]) for name in names]

    @property
    def context_window(self) -> int:
        return self.facts.context_window or self.facts.usual_window

    @property
    def stated_window(self) -> int:
        """The context window stated by the server or a refusal, 0 if neither stated it."""
        return self.facts.context_window

    @cached_property
    def host(self) -> str:
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @cached_property
    def wire(self) -> str:
        """Name of the wire, followed by the server if it is not the provider's own.

        Reasoning is sent back only over the wire it came from, and servers that speak the same
        protocol may refuse each other's.
        """
        is_own = urlsplit(self.BASE_URL).netloc == self.host
        return self.WIRE if is_own else f"{self.WIRE}:{self.host}"

    def normalize_model(self, model: str) -> str:
        return model

    def build_auth_headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def check_config(self, config: RequestConfig) -> None:
        """Raise ModelRefused for a config whose requests the provider would always refuse."""
        if config.tools and not self.takes_tools:
            raise ModelRefused(
                f"the server says that {self.model} takes no tools",
                where=strip_url(self.url),
                remedy=NO_TOOLS_REMEDY,
            )

    def read_refused_answer(self, body: bytes, names: ToolNames) -> AssistantMessage | None:
        return None

    @abstractmethod
    def build_url(self, base_url: str) -> str: ...

    @abstractmethod
    def encode_prefix(self, config: RequestConfig, names: ToolNames) -> bytes:
        """Encode the body up to and including the "[" of its messages."""

    @abstractmethod
    def encode_message(self, message: Message, names: ToolNames) -> Iterable[dict[str, Any]]:
        """Encode a message for the wire; empty if it has no sendable content."""

    def fit_entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Adapt an encoded message to what the server accepts; it may be adapted again."""
        return entry

    def join_entry(self, last: bytes | bytearray, entry: dict[str, Any]) -> dict[str, Any] | None:
        """Merge two messages the server does not accept in a row; None if it accepts them."""
        return None

    @abstractmethod
    def make_reader(self, names: ToolNames) -> StreamReader: ...


class WireConversation:
    """A conversation: a fixed prefix, and its messages' bytes, each encoded once."""

    def __init__(self, model: WireModel, config: RequestConfig) -> None:
        self._model = model
        self._prefix = model.get_prefix(config)
        self._messages = bytearray()
        self._last_start = 0
        self._room: int | None = None
        self._refused_count = 0
        self._was_told_of_text = False

    def append(self, message: Message) -> None:
        if isinstance(message, AssistantMessage):
            is_refused = message.provider_stop_reason == REFUSED_CALLS
            self._refused_count = self._refused_count + 1 if is_refused else 0
            self._was_told_of_text = message.provider_stop_reason == WRITTEN_CALL
            message = self._remove_unoffered_blocks(message)
        elif not self._model.takes_images:
            message = replace_unsent_images(message, self._model.name, self._model.unsent)
        for entry in self._model.encode_message(message, self._prefix.names):
            self.append_entry(entry)

    def _remove_unoffered_blocks(self, message: AssistantMessage) -> AssistantMessage:
        """Remove blocks of provider tools if requests offer none, or they would be refused."""
        content = tuple([each for each in message.content if not isinstance(each, ProviderBlock)])
        if len(content) == len(message.content):
            return message
        is_offered = self._model.encode_provider_tools(self._prefix.config)
        return message if is_offered else replace(message, content=content)

    def request_answer(
        self, *, tools: bool = True, max_tokens: int | None = None
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        model = self._model
        model.check_config(self._prefix.config)
        return model.http.stream_answer(
            model.url,
            model.headers,
            lambda: self.build_body(tools=tools, max_tokens=max_tokens),
            lambda: model.make_reader(self._prefix.names),
            self._handle_failure,
            self._check_answer if tools else None,
        )

    def _check_answer(self, answer: AssistantMessage) -> AssistantMessage | None:
        """Mark an answer as stopped early if it contains a tool call written as text.

        The model is told once; ModelRefused is raised if its next answer does it again.
        """
        prefix = self._prefix
        if answer.tool_calls or not prefix.config.tools:
            return answer
        offered = {prefix.names.to_wire(tool.name) for tool in prefix.config.tools}
        name = find_written_call(answer, offered)
        if not name:
            return answer
        if self._was_told_of_text:
            raise ModelRefused(
                f"the server does not parse tool calls: it sent a call of {name} as text, twice",
                where=strip_url(self._model.url),
                remedy="Start the server with a tool parser (vLLM: --enable-auto-tool-choice and "
                "--tool-call-parser, llama.cpp: --jinja), or use another model.",
            )
        return replace(answer, stop_reason=StopReason.OTHER, provider_stop_reason=WRITTEN_CALL)

    def build_body(self, *, tools: bool = True, max_tokens: int | None = None) -> bytes:
        return b"".join((self._make_start(max_tokens), self._messages, self._make_end(tools=tools)))

    def _make_start(self, max_tokens: int | None) -> bytes:
        prefix = self._prefix
        limit = choose_smaller(self._room, max_tokens)
        if limit is None:
            return prefix.data
        start = prefix.limited.get(limit)
        if start is None:
            own = prefix.facts.choose_max_tokens(prefix.config.max_tokens)
            config = replace(prefix.config, max_tokens=choose_smaller(own, limit))
            start = self._model.encode_prefix(self._model.fit_config(config), prefix.names)
            prefix.limited.clear()
            prefix.limited[limit] = start
        return start

    def _make_end(self, *, tools: bool) -> bytes:
        config = self._prefix.config
        if tools or not (config.tools or self._model.encode_provider_tools(config)):
            return b"]}"
        if "tool_choice" in self._prefix.facts.refused:
            return b"]}"
        return b"],%b}" % self._model.TOOLS_OFF

    def _handle_failure(self, failure: RequestFailure) -> Remedy | None:
        """Find a body without the refused part, or the answer inside the refusal.

        Each change is made only once, which bounds the number of requests.
        """
        model = self._model
        if not failure.is_repairable:
            return None
        answer = model.read_refused_answer(failure.body, self._prefix.names)
        if answer and self._refused_count < _MAX_REFUSED_ANSWERS:
            return Remedy(answer=answer)
        change = "earlier refusals are avoided"
        # Otherwise another conversation has already learnt from a refusal: try again with that.
        if self._prefix.facts is model.facts:
            refusal = failure.error.message
            from .refusals.repairs import PATTERNS, learn_facts  # only a refusal needs it

            room_change = self._fit_room(refusal) or self._remove_refused(refusal)
            learnt = None if room_change else learn_facts(model.facts, refusal)
            if learnt:
                facts, change = learnt
                if facts.refused - model.facts.refused == frozenset({PATTERNS}):
                    change += self._name_tools_with_patterns()
                model.change_facts(facts)
            elif room_change:
                change = room_change
            else:
                return None
        self._prefix = model.get_prefix(self._prefix.config)
        self._replace_entries(self._decode_entries())
        return Remedy(change=f"sent again: {change}. {failure.error.message}")

    def _remove_refused(self, refusal: str) -> str:
        """Leave out earlier reasoning or images the provider refused; return the change."""
        from .refusals.history import find_removal, takes_no_images

        found = find_removal(refusal)
        if found is None:
            return ""
        remove, change = found
        entries = self._decode_entries()
        kept = [each for entry in entries if (each := remove(entry)) is not None]
        if kept == entries:
            return ""
        if takes_no_images(refusal):
            self._model.takes_images = False
        self._replace_entries(kept)
        return change

    def _name_tools_with_patterns(self) -> str:
        from .refusals.repairs import remove_patterns

        tools = self._prefix.config.tools
        names = [each.name for each in tools if remove_patterns(each.parameters) != each.parameters]
        return f", those of {', '.join(names)} had some" if names else ""

    def _fit_room(self, refusal: str) -> str:
        """Lower the output limit to the room stated in a refusal; return the change, or ""."""
        model = self._model
        from .refusals.repairs import find_room

        window, room = find_room(refusal)
        own = model.facts.choose_max_tokens(self._prefix.config.max_tokens)
        if not room or room >= min(own, self._room or own):
            return ""
        if window and window != model.facts.context_window:
            model.change_facts(replace(model.facts, context_window=window))
        # Half the room, because the next prompts will be longer.
        self._room = room // 2
        return f"this answer has at most {self._room:,} tokens"

    def append_entry(self, entry: dict[str, Any]) -> None:
        model = self._model
        last = self._messages[self._last_start :] if model.facts.alternates else b""
        if last and (joined := model.join_entry(last, entry)):
            del self._messages[self._last_start :]
            entry = joined
        elif self._messages:
            self._messages += b","
        self._last_start = len(self._messages)
        self._messages += encode(model.fit_entry(entry))

    def _decode_entries(self) -> list[dict[str, Any]]:
        return msgspec.json.decode(b"[%b]" % self._messages)

    def _replace_entries(self, entries: list[dict[str, Any]]) -> None:
        # Adapt each to what the server is now known to accept.
        self._messages.clear()
        self._last_start = 0
        for entry in entries:
            self.append_entry(entry)


def get_sampling(config: RequestConfig, facts: ModelFacts) -> dict[str, float]:
    requested = {name: getattr(config, name) for name in _SAMPLING}
    sampling = {
        name: value
        for name, value in requested.items()
        if value is not None and name not in facts.refused
    }
    if facts.takes_one_sampling and len(sampling) > 1:
        del sampling["top_p"]
    return sampling


def warn_unsent_sampling(
    model: str, config: RequestConfig, facts: ModelFacts, unsent: set[str]
) -> None:
    """Log sampling settings that are set but not sent, except those already logged (`unsent`)."""
    requested = {name for name in _SAMPLING if getattr(config, name) is not None}
    for name in sorted(requested - get_sampling(config, facts).keys() - unsent):
        unsent.add(name)
        log.warning("%s: %s is not sent, because the model refuses it.", model, name)


def describe_stop(
    own_reason: str,
    reasons: Mapping[str, StopReason],
    content: Iterable[AssistantBlock],
    default: StopReason = StopReason.OTHER,
) -> dict[str, Any]:
    reason = resolve_stop_reason(reasons.get(own_reason, default), content)
    is_complete = reason in (StopReason.END, StopReason.CALLS)
    return {"stop_reason": reason, "provider_stop_reason": "" if is_complete else own_reason}


def encode_function(tool: Tool, names: ToolNames) -> dict[str, Any]:
    """Encode a tool for Chat Completions and Ollama."""
    function = {
        "name": names.to_wire(tool.name),
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}


def join_message_text(message: Message) -> str:
    """Join a message's texts into paragraphs, for wires with one text per message."""
    blocks = join_texts(message.content)
    texts = [clean(block.text) for block in blocks if isinstance(block, TextBlock)]
    return "\n\n".join(text for text in texts if text.strip())


def format_result_text(result: ToolResultBlock) -> str:
    """Format a tool result for wires without an error field; never empty."""
    text = clean(result.text) or "(empty)"
    if result.error and not text.lower().startswith("error"):
        text = f"Error: {text}"
    return text
