"""Gemini's generateContent: function calling, thoughts and their signatures."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from .._core.messages import (
    AssistantMessage,
    Message,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
)
from .._core.ports import RequestConfig, RetryNotice, StreamChunk
from .._core.tools import Tool
from ..errors import ModelGarbled
from ._http import HttpClient, StreamCut, StreamError
from ._json import clean, encode, make_decoder, parse_arguments
from ._request_prefix import PrefixCache
from ._tool_names import ToolNames

WIRE = "google"
BASE_URL = "https://generativelanguage.googleapis.com/v1beta"

_OURS = "mudroom_"
"""Begins the ids of calls that came without one; such ids are not sent back."""

_NO_SEAL = "skip_thought_signature_validator"
"""What Gemini 3 wants in place of a signature on calls it did not make itself; it refuses them otherwise."""


class GoogleModel:
    """A model behind generateContent.

    Arguments:
        model: its id, with or without "models/" before it.
        http: connections and gate of this provider.
        key: sent in a header, never in the URL. base_url: everything before `/models`.
        headers: sent beside our own. name: the model string; "google:MODEL" by default.
    """

    def __init__(
        self,
        model: str,
        *,
        http: HttpClient,
        key: str = "",
        base_url: str = BASE_URL,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        self.model, self.http = model.removeprefix("models/"), http
        self.name = name or f"google:{self.model}"
        self.url = (
            f"{base_url.rstrip('/')}/models/{quote(self.model)}:streamGenerateContent?alt=sse"
        )
        sealed = {"x-goog-api-key": key} if key else {}
        self.headers = {"Content-Type": "application/json", **sealed, **(headers or {})}
        self.prefixes = PrefixCache(lambda setup, names: _head(model, setup, names))

    def start_conversation(self, setup: RequestConfig) -> GoogleConversation:
        """Begin a conversation; costs no request."""
        return GoogleConversation(self, setup)

    async def close(self) -> None:
        """Let go of connections."""
        await self.http.close()


class GoogleConversation:
    """One conversation: a head that never changes, and the contents' bytes, each encoded once."""

    def __init__(self, model: GoogleModel, setup: RequestConfig) -> None:
        self._model, self._head = model, model.prefixes.get(setup)
        self._kept = bytearray()

    def append(self, message: Message) -> None:
        """Append a message."""
        if isinstance(message, UserMessage):
            role, parts = "user", list(_from_user(message, self._head.names))
        else:
            role, parts = (
                "model",
                list(
                    _from_assistant(
                        message, self._head.names, strict=self._model.model.startswith("gemini-3")
                    )
                ),
            )
        if not parts:
            return
        if self._kept:
            self._kept += b","
        self._kept += encode({"role": role, "parts": parts})

    def request_answer(
        self, *, tools: bool = True
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        """Ask for the next answer. Raises ModelError."""
        model = self._model
        return model.http.stream_answer(
            model.url,
            model.headers,
            self.build_body(tools=tools),
            lambda: GoogleReader(model.model, self._head.names),
        )

    def build_body(self, *, tools: bool = True) -> bytes:
        """The request as it is sent."""
        tail = (
            b"]}"
            if tools or not self._head.has_tools
            else b'],"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}}'
        )
        return b"".join((self._head.data, self._kept, tail))


def _head(model: str, setup: RequestConfig, names: ToolNames) -> bytes:
    fields: dict[str, Any] = {}
    if system := clean(setup.system):
        fields["systemInstruction"] = {"parts": [{"text": system}]}
    if setup.tools:
        fields["tools"] = [
            {"functionDeclarations": [_declare(tool, names) for tool in setup.tools]}
        ]
    sampling = {
        "maxOutputTokens": setup.max_tokens or _most_tokens(model),
        "temperature": setup.temperature,
        "topP": setup.top_p,
    }
    fields["generationConfig"] = {
        key: value for key, value in sampling.items() if value is not None
    }
    return encode(fields)[:-1] + b',"contents":['


def _most_tokens(model: str) -> int:
    """How long an answer, thoughts included, may be when nobody says: no more than the oldest models of the family allow."""
    return 8_192 if model.startswith(("gemini-1", "gemini-2.0", "gemma")) else 32_768


def _declare(tool: Tool, names: ToolNames) -> dict[str, Any]:
    return {
        "name": names.to_wire(tool.name),
        "description": tool.description,
        "parametersJsonSchema": tool.parameters,
    }


def _from_user(message: UserMessage, names: ToolNames) -> Iterator[dict[str, Any]]:
    """Results first, then words, all in one content: a turn of calls must be followed by all its results."""
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            response = {"error" if block.error else "result": block.text}
            yield {
                "functionResponse": {
                    **_id(block.call_id),
                    "name": names.to_wire(block.name),
                    "response": response,
                }
            }
    for block in message.content:
        if isinstance(block, TextBlock) and (text := clean(block.text)):
            yield {"text": text}


def _from_assistant(
    message: AssistantMessage, names: ToolNames, *, strict: bool
) -> Iterator[dict[str, Any]]:
    """The parts of an answer. `strict`: the model wants a signature on the first call, also on one that it did not make."""
    own = message.wire == WIRE
    unsealed = strict and not own
    for block in message.content:
        seal = {"thoughtSignature": block.signature} if own and block.signature else {}
        if isinstance(block, ToolCallBlock):
            seal = {"thoughtSignature": _NO_SEAL} if unsealed else seal
            unsealed = False
            yield _from_call(block, names) | seal
        elif isinstance(block, ThinkingBlock):
            if own and (text := clean(block.text)):
                yield {"text": text, "thought": True} | seal
        elif text := clean(block.text):
            yield {"text": text} | seal


def _from_call(call: ToolCallBlock, names: ToolNames) -> dict[str, Any]:
    given = {"INVALID_JSON": call.malformed} if call.malformed else call.arguments
    return {"functionCall": {**_id(call.id), "name": names.to_wire(call.name), "args": given}}


def _id(call_id: str) -> dict[str, str]:
    return {} if call_id.startswith(_OURS) else {"id": call_id}


# --- the answer ----------------------------------------------------------------------------------------------------------------


class _FunctionCall(Struct):
    name: str = ""
    id: str | None = None
    args: dict[str, Any] | None = None


class _Part(Struct, rename="camel"):
    text: str | None = None
    thought: bool = False
    thought_signature: str = ""
    function_call: _FunctionCall | None = None


class _Content(Struct):
    parts: list[_Part] | None = None


class _Candidate(Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None


class _Feedback(Struct, rename="camel"):
    block_reason: str | None = None


class _Usage(Struct, rename="camel"):
    prompt_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None


class _Error(Struct):
    code: int = 500
    message: str = ""


class _Chunk(Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Usage | None = None
    model_version: str | None = None
    response_id: str | None = None
    error: _Error | None = None


_decode = make_decoder(_Chunk)

_STOPS = {
    "STOP": StopReason.END,
    "MAX_TOKENS": StopReason.LENGTH,
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
        StopReason.REFUSAL,
    ),
}


class GoogleReader:
    """Reads one streamed answer; it is whole once a finishReason, or a word that the prompt was blocked, came.

    Arguments:
        model: the name to report when the server gives none.
        names: of the tools offered.
    """

    def __init__(self, model: str, names: ToolNames) -> None:
        self._model, self._names = model, names
        self._id = self._finish = ""
        self._blocks: list[TextBlock | ThinkingBlock | ToolCallBlock] = []
        self._usage = Usage()
        self._known = self._foreign = False

    @property
    def is_done(self) -> bool:
        """Never known before the end: some models put a finishReason into every chunk."""
        return False

    def feed(self, data: bytes) -> Sequence[StreamChunk]:
        """Take one payload. Raises Refused for an error sent in place of it, DecodeError for what is no chunk."""
        chunk = _decode(data)
        self._foreign = not (
            self._known or chunk.candidates or chunk.prompt_feedback or chunk.usage_metadata
        )
        self._known = not self._foreign
        if chunk.error:
            raise StreamError(chunk.error.code, chunk.error.message)
        self._id, self._model = chunk.response_id or self._id, chunk.model_version or self._model
        if chunk.usage_metadata:
            self._usage = _usage(chunk.usage_metadata)
        if chunk.prompt_feedback and chunk.prompt_feedback.block_reason:
            self._finish = chunk.prompt_feedback.block_reason
        return self._candidate(chunk.candidates[0]) if chunk.candidates else ()

    def finish(self) -> AssistantMessage:
        """The whole answer.

        Raises Cut when the stream ended before it did, Refused when all that came is a call which the model itself
        could not write, ModelGarbled when no piece of it was a chunk.
        """
        if self._foreign:
            raise ModelGarbled("no piece of the answer is a generateContent chunk")
        if not self._finish:
            raise StreamCut
        if self._finish == "MALFORMED_FUNCTION_CALL" and not self._blocks:
            raise StreamError(502, "the model wrote a malformed function call")
        content = tuple(
            block if isinstance(block, ToolCallBlock) else _cleaned(block) for block in self._blocks
        )
        stop = _STOPS.get(self._finish, StopReason.OTHER if content else StopReason.REFUSAL)
        if stop is StopReason.END and any(isinstance(block, ToolCallBlock) for block in content):
            stop = StopReason.CALLS
        return AssistantMessage(
            content, stop_reason=stop, usage=self._usage, model=self._model, wire=WIRE, id=self._id
        )

    def _candidate(self, candidate: _Candidate) -> list[StreamChunk]:
        if candidate.finish_reason:
            self._finish = candidate.finish_reason
        pieces: list[StreamChunk] = []
        parts = candidate.content.parts if candidate.content else None
        for part in parts or ():
            if part.function_call is not None:
                pieces.append(self._call(part.function_call, part.thought_signature))
            elif part.text is not None:
                self._words(
                    ThinkingBlock if part.thought else TextBlock, part.text, part.thought_signature
                )
                if part.text:
                    pieces.append(StreamChunk("thinking" if part.thought else "text", part.text))
        return pieces

    def _call(self, call: _FunctionCall, signature: str) -> StreamChunk:
        text = encode(call.args or {}).decode()
        call_id = call.id or f"{_OURS}{uuid.uuid4().hex[:20]}"
        self._blocks.append(
            ToolCallBlock(
                call_id,
                self._names.from_wire(call.name),
                parse_arguments(text)[0],
                signature=signature,
            )
        )
        return StreamChunk("call", text)

    def _words(
        self, kind: type[TextBlock] | type[ThinkingBlock], text: str, signature: str
    ) -> None:
        """Join words to those before them, unless a signature has sealed those. An empty part only brings a signature."""
        last = self._blocks[-1] if self._blocks else None
        if (
            isinstance(last, (TextBlock, ThinkingBlock))
            and not last.signature
            and (isinstance(last, kind) or not text)
        ):
            self._blocks[-1] = type(last)(last.text + text, signature=signature)
        elif text:
            self._blocks.append(kind(text, signature=signature))


def _cleaned(block: TextBlock | ThinkingBlock) -> TextBlock | ThinkingBlock:
    return type(block)(clean(block.text), signature=block.signature)


def _usage(usage: _Usage) -> Usage:
    thoughts = usage.thoughts_token_count or 0
    return Usage(
        input_tokens=(usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
        output_tokens=(usage.candidates_token_count or 0) + thoughts,
        cache_read_tokens=usage.cached_content_token_count or 0,
        reasoning_tokens=thoughts,
    )
