"""OpenAI Chat Completions, and every server that speaks it: Ollama, vLLM, llama.cpp, LM Studio, OpenRouter, DeepSeek and more."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from .._core.messages import Assistant, Call, Message, Result, StopReason, Text, Thinking, Usage, User
from .._core.ports import Piece, Retry, Setup
from .._core.tools import Tool
from ..errors import ModelGarbled
from ._http import Cut, Http, Refused
from ._json import arguments, clean, decoder, encode
from .names import Names

WIRE = "openai"
HOME = "https://api.openai.com/v1"


class OpenAIModel:
    """A model behind Chat Completions.

    Arguments:
        model: the name the server knows it by.
        http: connections and gate of this provider.
        key: sent as bearer token; "" sends none, as local servers want.
        base_url: everything before `/chat/completions`.
        headers: sent beside our own. name: the model string; "openai:MODEL" by default.
    """

    def __init__(
        self,
        model: str,
        *,
        http: Http,
        key: str = "",
        base_url: str = HOME,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        self.model, self.http, self.name = model, http, name or f"openai:{model}"
        self.url = base_url.rstrip("/") + "/chat/completions"
        self.at_home = self.url.startswith("https://api.openai.com/")
        bearer = {"Authorization": f"Bearer {key}"} if key else {}
        self.headers = {"Content-Type": "application/json", **bearer, **(headers or {})}

    def chat(self, setup: Setup) -> OpenAIChat:
        """Begin a conversation; costs no request."""
        return OpenAIChat(self, setup)

    async def close(self) -> None:
        """Let go of connections."""
        await self.http.close()


class OpenAIChat:
    """One conversation: a head that never changes, and the messages' bytes, each encoded once."""

    def __init__(self, model: OpenAIModel, setup: Setup) -> None:
        self._model, self._offers, self._names = model, bool(setup.tools), Names(tool.name for tool in setup.tools)
        self._head = _head(model, setup, self._names)
        self._kept = bytearray()
        if system := clean(setup.system):
            self._append({"role": "system", "content": system})

    def add(self, message: Message) -> None:
        """Append a message."""
        wired = (
            _from_user(message) if isinstance(message, User) else _from_assistant(message, self._names, reasoning=not self._model.at_home)
        )
        for entry in wired:
            self._append(entry)

    def ask(self, *, tools: bool = True) -> AsyncIterator[Piece | Retry | Assistant]:
        """Ask for the next answer. Raises ModelError."""
        model = self._model
        return model.http.converse(model.url, model.headers, self.body(tools=tools), lambda: OpenAIReader(model.model, self._names))

    def body(self, *, tools: bool = True) -> bytes:
        """The request as it is sent."""
        tail = b"]}" if tools or not self._offers else b'],"tool_choice":"none"}'
        return b"".join((self._head, self._kept, tail))

    def _append(self, entry: dict[str, Any]) -> None:
        if self._kept:
            self._kept += b","
        self._kept += encode(entry)


def _head(model: OpenAIModel, setup: Setup, names: Names) -> bytes:
    fields: dict[str, Any] = {"model": model.model, "stream": True, "stream_options": {"include_usage": True}}
    limit = setup.max_tokens or _most_tokens(model.model, at_home=model.at_home)
    fields["max_completion_tokens" if model.at_home else "max_tokens"] = limit
    if not (model.at_home and _reasons(model.model)):
        sampling = {"temperature": setup.temperature, "top_p": setup.top_p}
        fields |= {key: value for key, value in sampling.items() if value is not None}
    if setup.tools:
        fields["tools"] = [_declare(tool, names) for tool in setup.tools]
    return encode(fields)[:-1] + b',"messages":['


def _reasons(model: str) -> bool:
    """Whether a model of OpenAI's refuses `temperature` and `top_p`."""
    return model.startswith(("o1", "o3", "o4", "gpt-5"))


def _most_tokens(model: str, *, at_home: bool) -> int:
    """How long an answer may be when nobody says: long enough to write a file, and no more than the model's own limit."""
    if not at_home:
        return 8_192
    if _reasons(model):
        return 32_000
    return 4_096 if model.startswith(("gpt-3.5", "gpt-4-")) or model == "gpt-4" else 16_384


def _declare(tool: Tool, names: Names) -> dict[str, Any]:
    function = {"name": names.wire(tool.name), "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _from_user(message: User) -> Iterator[dict[str, Any]]:
    """Results first, each a message of its own, then all words as one."""
    for block in message.content:
        if isinstance(block, Result):
            text = clean(block.text) or "(empty)"
            if block.error and not text.lower().startswith("error"):
                text = f"Error: {text}"
            yield {"role": "tool", "tool_call_id": block.call_id, "content": text}
    if words := [text for block in message.content if isinstance(block, Text) and (text := clean(block.text))]:
        yield {"role": "user", "content": "\n\n".join(words)}


def _from_assistant(message: Assistant, names: Names, *, reasoning: bool) -> Iterator[dict[str, Any]]:
    """One message, or none when nothing in it may be sent."""
    texts = [text for block in message.content if isinstance(block, Text) and (text := clean(block.text))]
    calls = [_from_call(call, names) for call in message.calls]
    if not texts and not calls:
        return
    entry: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts) or None}
    thoughts = "".join(block.text for block in message.content if isinstance(block, Thinking))
    if thoughts and reasoning and message.wire == WIRE:
        entry["reasoning_content"] = thoughts
    if calls:
        entry["tool_calls"] = calls
    yield entry


def _from_call(call: Call, names: Names) -> dict[str, Any]:
    """A call as it goes back. Raw text that is no JSON is wrapped: OpenAI takes any string, but vLLM and Ollama parse it and refuse."""
    given = {"INVALID_JSON": call.malformed} if call.malformed else call.arguments
    function = {"name": names.wire(call.name), "arguments": encode(given).decode()}
    return {"id": call.id, "type": "function", "function": function}


# --- the answer ----------------------------------------------------------------------------------------------------------------


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolCall(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Part(Struct):
    type: str = "text"
    text: str = ""
    thinking: list[_Part] | str = ""


class _Delta(Struct):
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _PromptDetails(Struct):
    cached_tokens: int | None = None


class _CompletionDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Chunk(Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = decoder(_Chunk)

_STOPS = {
    "stop": StopReason.END,
    "tool_calls": StopReason.CALLS,
    "function_call": StopReason.CALLS,
    "length": StopReason.LENGTH,
    "content_filter": StopReason.REFUSAL,
}
_STATUSES = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "insufficient_quota": 400,
    "invalid_request_error": 400,
    "authentication_error": 401,
    "overloaded_error": 529,
}


class _Draft:
    """A tool call as it grows."""

    __slots__ = ("id", "name", "pieces")

    def __init__(self) -> None:
        self.id, self.name = "", ""
        self.pieces: list[str] = []

    def finish(self, names: Names, taken: set[str]) -> Call:
        if not self.id or self.id in taken:
            self.id = f"call_{uuid.uuid4().hex[:24]}"
        taken.add(self.id)
        given, malformed = arguments("".join(self.pieces))
        return Call(self.id, names.ours(self.name), given, malformed)


class OpenAIReader:
    """Reads one streamed answer.

    It is whole once a finish_reason or `[DONE]` came: some servers leave out one of them. Tolerated too: no usage, no ids, tool calls
    without index, all with index 0, or whole in one chunk.

    Arguments:
        model: the name to report when the server gives none.
        names: of the tools offered.
    """

    def __init__(self, model: str, names: Names) -> None:
        self._model, self._names = model, names
        self._id = self._finish = ""
        self._done = self._refused = False
        self._known = self._foreign = False
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._drafts: list[_Draft] = []
        self._by_index: dict[int, _Draft] = {}
        self._usage = Usage()

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self._done

    def feed(self, data: bytes) -> Sequence[Piece]:
        """Take one payload. Raises Refused for an error sent in place of it, DecodeError for what is no chunk."""
        if data.strip() == b"[DONE]":
            self._done = True
            return ()
        chunk = _decode(data)
        self._foreign = not (self._known or chunk.id or chunk.choices or chunk.usage)
        self._known = not self._foreign
        if chunk.error:
            raise _refusal(chunk.error)
        self._id, self._model = chunk.id or self._id, chunk.model or self._model
        if chunk.usage:
            self._usage = _usage(chunk.usage)
        return self._choice(chunk.choices[0]) if chunk.choices else ()

    def finish(self) -> Assistant:
        """The whole answer. Raises Cut when the stream ended before it did, ModelGarbled when no piece of it was a chunk."""
        if self._foreign:
            raise ModelGarbled("no piece of the answer is a chat completion chunk")
        if not self._finish and not (self._done and (self._texts or self._drafts)):
            raise Cut
        taken: set[str] = set()
        calls = [draft.finish(self._names, taken) for draft in self._drafts]
        content: list[Text | Thinking | Call] = []
        if thoughts := clean("".join(self._thoughts)):
            content.append(Thinking(thoughts))
        if text := clean("".join(self._texts)):
            content.append(Text(text))
        stop = StopReason.REFUSAL if self._refused else _STOPS.get(self._finish or "stop", StopReason.OTHER)
        if calls and stop is StopReason.END:
            stop = StopReason.CALLS
        return Assistant((*content, *calls), stop=stop, usage=self._usage, model=self._model, wire=WIRE, id=self._id)

    def _choice(self, choice: _Choice) -> list[Piece]:
        if choice.finish_reason:
            self._finish = choice.finish_reason
        if choice.finish_reason == "error":
            raise Refused(502, "the provider ended its answer with an error")
        pieces: list[Piece] = []
        delta = choice.delta
        if delta is None:
            return pieces
        text, thought = _words(delta)
        if thought:
            self._thoughts.append(thought)
            pieces.append(Piece("thinking", thought))
        if text:
            self._texts.append(text)
            pieces.append(Piece("text", text))
        self._refused = self._refused or bool(delta.refusal)
        for call in delta.tool_calls or ():
            pieces += self._call(call)
        return pieces

    def _call(self, part: _ToolCall) -> Iterator[Piece]:
        function = part.function or _Function()
        draft = self._draft(part, function)
        draft.id, draft.name = draft.id or part.id or "", draft.name or function.name or ""
        if given := function.arguments:
            text = given if isinstance(given, str) else encode(given).decode()
            draft.pieces.append(text)
            yield Piece("call", text)

    def _draft(self, part: _ToolCall, function: _Function) -> _Draft:
        """The call a part belongs to: by index if it has one, else the last; a name under another id begins a new one."""
        last = self._drafts[-1] if self._drafts else None
        draft = last if part.index is None else self._by_index.get(part.index)
        begins = bool(function.name) and draft is not None and (part.id != draft.id if part.id else part.index is None)
        if draft is None or begins:
            draft = _Draft()
            self._drafts.append(draft)
            if part.index is not None:
                self._by_index[part.index] = draft
        return draft


def _words(delta: _Delta) -> tuple[str, str]:
    """The text and the reasoning of a delta, whichever way the server spells them."""
    text, thought = delta.content or "", delta.reasoning_content or delta.reasoning or ""
    if isinstance(text, list):
        thought += "".join(_flat(part.thinking) for part in text if part.type == "thinking")
        text = "".join(part.text for part in text if part.type == "text")
    return text + (delta.refusal or ""), thought


def _flat(thinking: list[_Part] | str) -> str:
    return thinking if isinstance(thinking, str) else "".join(part.text for part in thinking)


def _usage(usage: _Usage) -> Usage:
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cache_read_tokens=(prompt.cached_tokens or 0) if prompt else 0,
        reasoning_tokens=(completion.reasoning_tokens or 0) if completion else 0,
    )


def _refusal(error: Any) -> Refused:
    """An error object in the stream, as the status it would have had as an answer."""
    if not isinstance(error, dict):
        return Refused(500, str(error))
    fields = cast("dict[str, Any]", error)
    for key in ("code", "status", "type"):
        value: Any = fields.get(key)
        if isinstance(value, str):
            value = int(value) if value.isdigit() else _STATUSES.get(value)
        if isinstance(value, int) and 400 <= value < 600:
            return Refused(value, str(fields.get("message") or value))
    return Refused(500, str(fields.get("message") or "the provider sent an error"))
