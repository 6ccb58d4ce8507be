"""Gemini's generateContent, with function calling, thoughts and thought signatures."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..._core.messages import (
    AssistantBlock,
    AssistantMessage,
    ImageBlock,
    Message,
    ProviderBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
    get_sendable_arguments,
)
from ..._core.ports import RequestConfig, StreamChunk
from ..._core.tools import Tool
from ..._projections.web_searches import describe_sources, make_provider_block
from ...errors import ModelGarbled
from ._http import StreamCut, make_stream_error
from ._images import make_image_label
from ._json import clean, encode, make_decoder, parse_arguments, read_arguments
from ._tool_names import ToolNames
from ._wire import WireConversation, WireModel, describe_stop, get_sampling
from .model_facts import NO_SIGNATURE, find_facts

WIRE = "google"
# Kind of the block with an answer's sources, which is never sent back.
GROUNDING = "groundingMetadata"
# Marks ids mudroom gave to calls without one. Such ids are not sent back.
OWN_ID_PREFIX = "mudroom_"


class _FunctionCall(Struct):
    name: str = ""
    id: str | None = None
    args: Raw = Raw()


class _Part(Struct, rename="camel"):
    tool_call: dict[str, Any] | None = None
    tool_response: dict[str, Any] | None = None
    text: str | None = None
    thought: bool = False
    thought_signature: str = ""
    function_call: _FunctionCall | None = None


class _Content(Struct):
    parts: list[_Part] | None = None


class _Page(Struct):
    uri: str | None = None
    title: str | None = None


class _Source(Struct):
    web: _Page | None = None


class _Grounding(Struct, rename="camel", omit_defaults=True):
    web_search_queries: list[str] | None = None
    grounding_chunks: list[_Source] | None = None


class _Candidate(Struct, rename="camel"):
    content: _Content | None = None
    grounding_metadata: _Grounding | None = None
    finish_reason: str | None = None


class _PromptFeedback(Struct, rename="camel"):
    block_reason: str | None = None


class _Usage(Struct, rename="camel"):
    prompt_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None


class _Chunk(Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _PromptFeedback | None = None
    usage_metadata: _Usage | None = None
    model_version: str | None = None
    response_id: str | None = None
    error: Any = None


_decode = make_decoder(_Chunk)

# Finish reasons of answers the model got wrong, possibly without content. It may try again.
_FAULTY_ANSWERS = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
    }
)
_STOP_REASONS = {
    "STOP": StopReason.END,
    "MAX_TOKENS": StopReason.LENGTH,
    "SAFETY": StopReason.REFUSAL,
    "RECITATION": StopReason.REFUSAL,
    "LANGUAGE": StopReason.REFUSAL,
    "BLOCKLIST": StopReason.REFUSAL,
    "PROHIBITED_CONTENT": StopReason.REFUSAL,
    "SPII": StopReason.REFUSAL,
}


class GoogleReader:
    """Reads a streamed answer, which is complete after a finish reason or a blocked prompt."""

    def __init__(self, model: str, names: ToolNames, wire: str = WIRE) -> None:
        self._model = model
        self._names = names
        self._wire = wire
        self._id = ""
        self._finish_reason = ""
        self._blocks: list[AssistantBlock] = []
        self._queries: list[str] = []
        self._sources: list[_Source] = []
        self._usage = Usage()
        self._has_valid_chunk = False
        self._has_only_foreign_chunks = False
        self._last_search = ""

    @property
    def is_done(self) -> bool:
        """Always false: some models send a finish reason in every chunk, so read to the end."""
        return False

    def feed(self, data: bytes) -> Sequence[StreamChunk]:
        chunk = _decode(data)
        if chunk.candidates or chunk.prompt_feedback or chunk.usage_metadata:
            self._has_valid_chunk = True
        self._has_only_foreign_chunks = not self._has_valid_chunk
        if chunk.error:
            raise make_stream_error(chunk.error)
        self._id = chunk.response_id or self._id
        self._model = chunk.model_version or self._model
        if chunk.usage_metadata:
            self._usage = _to_usage(chunk.usage_metadata)
        if chunk.prompt_feedback and chunk.prompt_feedback.block_reason:
            self._finish_reason = chunk.prompt_feedback.block_reason
        return self._read_candidate(chunk.candidates[0]) if chunk.candidates else ()

    def finish(self) -> AssistantMessage:
        if self._has_only_foreign_chunks:
            raise ModelGarbled("no part of the answer is a generateContent chunk")
        if not self._finish_reason:
            raise StreamCut
        content = tuple(map(_clean_block, self._insert_sources()))
        # An unknown reason without content means that the prompt was blocked.
        is_answer = content or self._finish_reason in _FAULTY_ANSWERS
        default = StopReason.OTHER if is_answer else StopReason.REFUSAL
        return AssistantMessage(
            content,
            usage=replace(self._usage, searches=len(self._queries)),
            model=self._model,
            wire=self._wire,
            id=self._id,
            **describe_stop(self._finish_reason, _STOP_REASONS, content, default),
        )

    def _read_candidate(self, candidate: _Candidate) -> list[StreamChunk]:
        if candidate.finish_reason:
            self._finish_reason = candidate.finish_reason
        chunks: list[StreamChunk] = []
        if candidate.grounding_metadata:
            self._add_grounding(candidate.grounding_metadata)
        parts = candidate.content.parts if candidate.content else None
        for part in parts or ():
            if part.function_call is not None:
                chunks.append(self._add_call(part.function_call, part.thought_signature))
            elif step := part.tool_call or part.tool_response:
                chunks.append(self._add_search(step, part))
            elif part.text is not None:
                kind = ThinkingBlock if part.thought else TextBlock
                self._add_text(kind, part.text, part.thought_signature)
                if part.text:
                    chunks.append(StreamChunk("thinking" if part.thought else "text", part.text))
        return chunks

    def _add_call(self, call: _FunctionCall, signature: str) -> StreamChunk:
        text = read_arguments(call.args) or "{}"
        arguments, malformed = parse_arguments(text)
        used = {block.id for block in self._blocks if isinstance(block, ToolCallBlock)}
        call_id = call.id
        if not call_id or call_id in used:
            call_id = f"{OWN_ID_PREFIX}{uuid.uuid4().hex[:20]}"
        name = self._names.from_wire(call.name)
        self._blocks.append(ToolCallBlock(call_id, name, arguments, malformed, signature))
        return StreamChunk("call", text)

    def _add_search(self, step: dict[str, Any], part: _Part) -> StreamChunk:
        kind = "toolCall" if part.tool_call else "toolResponse"
        data: dict[str, Any] = {kind: step}
        if part.thought_signature:
            data["thoughtSignature"] = part.thought_signature
        if part.tool_call:
            queries = _find_queries(step)
            self._add_queries(queries)
            self._last_search = f"searched the web: {'; '.join(queries)}"
            self._blocks.append(make_provider_block(kind, data, self._last_search))
            return StreamChunk(
                "search_start", self._last_search.replace("searched", "searching", 1)
            )
        self._blocks.append(make_provider_block(kind, data, "the search has ended"))
        return StreamChunk("search_end", self._last_search)

    def _add_grounding(self, grounding: _Grounding) -> None:
        self._add_queries(grounding.web_search_queries or ())
        self._sources = grounding.grounding_chunks or self._sources

    def _add_queries(self, queries: Iterable[str]) -> None:
        """Add new queries. Google charges once for a repeated query, and never for an empty one."""
        known = set(self._queries)
        self._queries += [query for query in queries if query.strip() and query not in known]

    def _insert_sources(self) -> list[AssistantBlock]:
        if not self._queries and not self._sources:
            return self._blocks
        pages = [source.web for source in self._sources if source.web]
        text = describe_sources((page.title or "", page.uri or "") for page in pages)
        steps = [n for n, each in enumerate(self._blocks, 1) if isinstance(each, ProviderBlock)]
        if not steps:
            text = f"searched the web: {'; '.join(self._queries)}\n{text}"
        data = msgspec.to_builtins(_Grounding(self._queries, self._sources))
        # After the last search, or at the end.
        place = steps[-1] if steps else len(self._blocks)
        sources = make_provider_block(GROUNDING, data, text)
        return [*self._blocks[:place], sources, *self._blocks[place:]]

    def _add_text(
        self, kind: type[TextBlock] | type[ThinkingBlock], text: str, signature: str
    ) -> None:
        """Join a text to the last block of its kind, unless that block is already signed.

        An empty text only carries the last block's signature.
        """
        last = self._blocks[-1] if self._blocks else None
        if (
            isinstance(last, TextBlock | ThinkingBlock)
            and not last.signature
            and (isinstance(last, kind) or not text)
        ):
            self._blocks[-1] = replace(last, text=last.text + text, signature=signature)
        elif text:
            block = kind(text, signature=signature)
            if isinstance(block, TextBlock) and isinstance(last, TextBlock):
                block = replace(block, is_continuation=True)
            self._blocks.append(block)


def _clean_block(block: AssistantBlock) -> AssistantBlock:
    if isinstance(block, TextBlock | ThinkingBlock):
        return replace(block, text=clean(block.text))
    return block


def _find_queries(call: dict[str, Any]) -> list[str]:
    arguments: dict[str, Any] = call.get("args") or {}
    queries = arguments.get("queries") or [arguments.get("query") or ""]
    return [str(query) for query in queries]


def _to_usage(usage: _Usage) -> Usage:
    thoughts = usage.thoughts_token_count or 0
    return Usage(
        input_tokens=(usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
        output_tokens=(usage.candidates_token_count or 0) + thoughts,
        cache_read_tokens=usage.cached_content_token_count or 0,
        reasoning_tokens=thoughts,
    )


_SAMPLING_NAMES = {"temperature": "temperature", "top_p": "topP"}


class GoogleModel(WireModel):
    WIRE = WIRE
    BASE_URL = "https://generativelanguage.googleapis.com/v1beta"
    TOOLS_OFF = b'"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}'
    PROVIDER_TOOLS = MappingProxyType({"web_search": {"googleSearch": {}}})

    def normalize_model(self, model: str) -> str:
        return model.removeprefix("models/")

    def build_url(self, base_url: str) -> str:
        return f"{base_url}/models/{quote(self.model)}:streamGenerateContent?alt=sse"

    def build_auth_headers(self, key: str) -> dict[str, str]:
        # In a header, because URLs end up in logs.
        return {"x-goog-api-key": key} if key else {}

    def encode_prefix(self, config: RequestConfig, names: ToolNames) -> bytes:
        fields: dict[str, Any] = {}
        if system := clean(config.system):
            fields["systemInstruction"] = {"parts": [{"text": system}]}
        tools: list[dict[str, Any]] = []
        if config.tools:
            declarations = [_encode_tool(tool, names) for tool in config.tools]
            tools.append({"functionDeclarations": declarations})
        if tools := tools + self.encode_provider_tools(config):
            fields["tools"] = tools
        sampling = get_sampling(config, self.facts)
        generation: dict[str, Any] = {
            "maxOutputTokens": self.facts.choose_max_tokens(config.max_tokens),
            **{_SAMPLING_NAMES[name]: value for name, value in sampling.items()},
        }
        if effort := self.get_effort(config):
            # Its levels end at "high".
            level = effort if effort in ("low", "medium") else "high"
            generation["thinkingConfig"] = {"thinkingLevel": level}
        fields["generationConfig"] = generation
        return encode(fields)[:-1] + b',"contents":['

    def make_conversation(self, config: RequestConfig) -> WireConversation:
        return _GoogleConversation(self, config)

    def encode_message(self, message: Message, names: ToolNames) -> list[dict[str, Any]]:
        if isinstance(message, UserMessage):
            role = "user"
            parts = list(_encode_user_message(message, names))
        else:
            role = "model"
            parts = list(self._encode_answer(message, names))
        return [{"role": role, "parts": parts}] if parts else []

    def make_reader(self, names: ToolNames) -> GoogleReader:
        return GoogleReader(self.model, names, self.wire)

    def _encode_answer(
        self, message: AssistantMessage, names: ToolNames
    ) -> Iterator[dict[str, Any]]:
        """Encode an answer without other servers' thoughts and signatures."""
        # A model that requires signatures requires one on the first call of each answer, even if
        # the answer came from another model, or from an older Gemini that signs nothing.
        is_own = message.wire == self.wire
        is_unsigned = not is_own or find_facts(message.model).takes_unsigned_calls
        is_signature_missing = is_unsigned and not self.facts.takes_unsigned_calls
        unanswered = _find_unanswered_searches(message)
        for block in message.content:
            if isinstance(block, ProviderBlock):
                if is_own and block.kind != GROUNDING and block not in unanswered:
                    yield msgspec.json.decode(block.data)
                continue
            signature = {}
            if is_own and block.signature:
                signature = {"thoughtSignature": block.signature}
            if isinstance(block, ToolCallBlock):
                if is_signature_missing and not signature:
                    signature = {"thoughtSignature": NO_SIGNATURE}
                is_signature_missing = False
                yield _encode_call(block, names) | signature
            elif isinstance(block, ThinkingBlock):
                if is_own and (text := clean(block.text)):
                    yield {"text": text, "thought": True} | signature
            elif text := clean(block.text):
                yield {"text": text} | signature


class _GoogleConversation(WireConversation):
    """A conversation whose tool settings are one object at the end of the body."""

    def _make_end(self, *, tools: bool) -> bytes:
        config = self._prefix.config
        if not self._model.encode_provider_tools(config):
            return super()._make_end(tools=tools)
        # Without this field, searches together with functions are refused.
        settings: dict[str, Any] = {"includeServerSideToolInvocations": True}
        if config.tools and not tools:
            settings["functionCallingConfig"] = {"mode": "NONE"}
        return b'],"toolConfig":%b}' % encode(settings)


def _find_unanswered_searches(message: AssistantMessage) -> set[ProviderBlock]:
    # A search without a result was interrupted.
    calls: dict[str, ProviderBlock] = {}
    for block in message.content:
        if isinstance(block, ProviderBlock):
            part: dict[str, Any] = msgspec.json.decode(block.data)
            if block.kind == "toolCall":
                calls[part["toolCall"].get("id", "")] = block
            elif block.kind == "toolResponse":
                calls.pop(part["toolResponse"].get("id", ""), None)
    return set(calls.values())


def _encode_tool(tool: Tool, names: ToolNames) -> dict[str, Any]:
    return {
        "name": names.to_wire(tool.name),
        "description": tool.description,
        "parametersJsonSchema": tool.parameters,
    }


def _encode_user_message(message: UserMessage, names: ToolNames) -> Iterator[dict[str, Any]]:
    """Encode tool results first, then their images, then texts and other images.

    All are parts of one content, because the results must directly follow the calls.
    """
    results = [block for block in message.content if isinstance(block, ToolResultBlock)]
    for result in results:
        yield _encode_result(result, names)
    for result in results:
        if result.images:
            yield {"text": make_image_label(result)}
            for image in result.images:
                yield _encode_image(image)
    for block in message.content:
        if isinstance(block, ImageBlock):
            yield _encode_image(block)
        elif isinstance(block, TextBlock) and (text := clean(block.text)):
            yield {"text": text}


def _encode_image(image: ImageBlock) -> dict[str, Any]:
    # The JSON encoder writes bytes as base64.
    return {"inlineData": {"mimeType": image.media_type, "data": image.data}}


def _encode_result(result: ToolResultBlock, names: ToolNames) -> dict[str, Any]:
    response = {
        **_encode_id(result.call_id),
        "name": names.to_wire(result.name),
        "response": {"error" if result.error else "result": result.text},
    }
    return {"functionResponse": response}


def _encode_call(call: ToolCallBlock, names: ToolNames) -> dict[str, Any]:
    return {
        "functionCall": {
            **_encode_id(call.id),
            "name": names.to_wire(call.name),
            "args": get_sendable_arguments(call),
        }
    }


def _encode_id(call_id: str) -> dict[str, str]:
    return {} if call_id.startswith(OWN_ID_PREFIX) else {"id": call_id}
