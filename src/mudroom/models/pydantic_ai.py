"""The long tail of providers, through pydantic-ai's model classes; nothing of it is imported before it is used."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import msgspec
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
from .._core.ports import Clock, RequestConfig, RetryNotice, StreamChunk
from ..errors import ModelGarbled, ModelRefused, ModelUnavailable, UsageError
from ._errors import ProviderHints, RequestFailure, classify_status, extract_error_text
from ._http import StreamCut
from ._json import clean, encode, parse_arguments
from ._rate_limit import RateLimiter
from ._tool_names import ToolNames

if TYPE_CHECKING:
    from pydantic_ai import messages as pm
    from pydantic_ai.models import Model as Theirs
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.usage import RequestUsage

_TRIES, _FIRST_DELAY, _LONGEST_DELAY = 6, 0.5, 30.0
_MOST_TOKENS = 8_192


class PydanticAIModel:
    """A model that pydantic-ai knows; it reads keys and addresses itself, from the variables its documentation names.

    Arguments:
        model: "provider:model" as pydantic-ai names it, or a model object of its, which stays the caller's to close.
        clock: time, for the waits between tries. chance: a random number from 0 to 1, for jitter.
        name: the model string; that of `model` by default.
    """

    def __init__(
        self,
        model: str | Theirs,
        *,
        clock: Clock,
        name: str = "",
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.name = name or (
            model if isinstance(model, str) else f"{model.system}:{model.model_name}"
        )
        self.clock, self.chance, self.rate_limiter = clock, jitter, RateLimiter(clock)
        self._model, self._made = model, False

    def start_conversation(self, setup: RequestConfig) -> PydanticAIConversation:
        """Begin a conversation. Raises UsageError when pydantic-ai, or what it needs for this provider, is missing."""
        return PydanticAIConversation(self, self._theirs(), setup)

    async def close(self) -> None:
        """Let go of connections."""
        if self._made and not isinstance(self._model, str):
            async with (
                self._model
            ):  # leaving it for the last time is what closes the connections that pydantic-ai made
                pass

    def _theirs(self) -> Theirs:
        if isinstance(self._model, str):
            self._model, self._made = _infer(self._model), True
        return self._model


class PydanticAIConversation:
    """One conversation: the messages in pydantic-ai's types, each converted once."""

    def __init__(self, model: PydanticAIModel, theirs: Theirs, setup: RequestConfig) -> None:
        self._model, self._theirs, self._names = (
            model,
            theirs,
            ToolNames(tool.name for tool in setup.tools),
        )
        self._wire = f"library:{theirs.system}"
        self._parameters = _parameters(setup, self._names)
        self._settings = _settings(setup)
        self._kept: list[pm.ModelMessage] = []

    def append(self, message: Message) -> None:
        """Append a message."""
        if isinstance(message, UserMessage):
            wired = _from_user(message, self._names)
        else:
            wired = _from_assistant(
                message, self._names, self._theirs.system if message.wire == self._wire else None
            )
        if wired.parts:
            self._kept.append(wired)

    async def request_answer(
        self, *, tools: bool = True
    ) -> AsyncGenerator[StreamChunk | RetryNotice | AssistantMessage, None]:
        """Ask for the next answer. Raises ModelError; UsageError when pydantic-ai lacks what it needs for this provider."""
        attempt, model = 0, self._model
        while True:
            attempt += 1
            try:
                async with aclosing(self._try(tools=tools)) as pieces:
                    async for piece in pieces:
                        yield piece
                return
            except RequestFailure as failure:
                if not failure.again or attempt == _TRIES:
                    raise failure.error from failure.__cause__
                jitter = model.chance() * min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (attempt - 1))
                retry = RetryNotice(
                    attempt, max(failure.wait, jitter), failure.status, failure.error.message
                )
            yield retry
            await model.clock.sleep(retry.delay)

    async def _try(self, *, tools: bool) -> AsyncGenerator[StreamChunk | AssistantMessage, None]:
        from pydantic_ai import direct

        settings = (
            self._settings
            if tools or not self._parameters.function_tools
            else {**self._settings, "tool_choice": "none"}
        )
        gate = self._model.rate_limiter
        request = await gate.acquire()
        try:
            async with direct.model_request_stream(
                self._theirs,
                self._kept,
                model_settings=cast("ModelSettings", settings),
                model_request_parameters=self._parameters,
            ) as stream:
                gate.record_accepted(request)
                async for event in stream:
                    if (piece := _piece(event)) is not None:
                        yield piece
                answer = _answer(stream.get(), self._names, self._wire)
            yield answer
        except (
            Exception
        ) as error:  # every provider's package raises what it likes: all of it is sorted
            failure = self._sorted(error)
            if failure.is_rate_limit:
                gate.record_refused(request, failure.wait)
            raise failure from error
        finally:
            gate.release(request)

    def _sorted(self, error: Exception) -> RequestFailure:
        from pydantic_ai import exceptions

        name, again = self._model.name, "Try again later."
        if isinstance(error, exceptions.ModelHTTPError):
            origin = ProviderHints(self._theirs.system)
            text = (
                extract_error_text(msgspec.json.encode(error.body, enc_hook=str))
                if error.body
                else ""
            )
            return classify_status(
                origin,
                _place(self._theirs),
                error.status_code,
                text,
                retry_after=error.retry_after or 0.0,
            )
        if isinstance(error, exceptions.UserError | ImportError):
            raise UsageError(f"pydantic-ai cannot use {name}: {error}") from error
        if isinstance(
            error,
            exceptions.ModelRequestRejectedError
            | exceptions.ModelQuotaExceededError
            | exceptions.ContentFilterError,
        ):
            return RequestFailure(0, ModelRefused(f"{name} refused the request: {error}"))
        if isinstance(error, exceptions.UnexpectedModelBehavior):
            return RequestFailure(
                0,
                ModelGarbled(f"{name} gave an answer that makes no sense: {error}"),
                retryable=True,
            )
        if isinstance(error, exceptions.ModelAPIError | OSError | TimeoutError | StreamCut):
            wait = getattr(error, "retry_after", None) or 0.0
            return RequestFailure(
                0,
                ModelUnavailable(f"{name} did not answer: {error}", remedy=again),
                retryable=True,
                retry_after=wait,
            )
        return RequestFailure(0, ModelGarbled(f"{name} failed: {type(error).__name__}: {error}"))


def _infer(model: str) -> Theirs:
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
    except ImportError as error:
        raise UsageError(
            f"{model} needs pydantic-ai, which is not installed",
            remedy="Install it: pip install 'mudroom[providers]'",
        ) from error
    try:
        return infer_model(model)
    except (UserError, ImportError) as error:
        raise UsageError(f"pydantic-ai cannot use {model}: {error}") from error


def _place(theirs: Theirs) -> str:
    return theirs.base_url or f"pydantic-ai://{theirs.system}"


def _parameters(setup: RequestConfig, names: ToolNames) -> ModelRequestParameters:
    from pydantic_ai.messages import InstructionPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    tools = [
        ToolDefinition(
            name=names.to_wire(tool.name),
            parameters_json_schema=tool.parameters,
            description=tool.description,
        )
        for tool in setup.tools
    ]
    system = clean(setup.system)
    return ModelRequestParameters(
        function_tools=tools, instruction_parts=[InstructionPart(system)] if system else []
    )


def _settings(setup: RequestConfig) -> dict[str, Any]:
    sampling = {"temperature": setup.temperature, "top_p": setup.top_p}
    fields = {"max_tokens": setup.max_tokens or _MOST_TOKENS, "max_retries": 0}
    return fields | {key: value for key, value in sampling.items() if value is not None}


class _Seal(Struct, omit_defaults=True):
    """What pydantic-ai keeps beside the words of a part, so that it can be sent back to the provider that made it."""

    id: str | None = None
    signature: str | None = None
    provider_name: str | None = None
    provider_details: dict[str, Any] | None = None


_unseal = msgspec.json.Decoder(_Seal).decode


def _sealed(part: Any) -> str:
    seal = _Seal(
        part.id, getattr(part, "signature", None), part.provider_name, part.provider_details
    )
    return "" if seal == _Seal() else msgspec.json.encode(seal, enc_hook=str).decode()


def _from_user(message: UserMessage, names: ToolNames) -> pm.ModelRequest:
    """Results first, then all words as one prompt."""
    from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart

    parts: list[pm.ModelRequestPart] = [
        ToolReturnPart(
            names.to_wire(block.name),
            clean(block.text),
            block.call_id,
            outcome="failed" if block.error else "success",
        )
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]
    if words := [
        text
        for block in message.content
        if isinstance(block, TextBlock) and (text := clean(block.text))
    ]:
        parts.append(UserPromptPart("\n\n".join(words)))
    return ModelRequest(parts)


def _from_assistant(
    message: AssistantMessage, names: ToolNames, own: str | None
) -> pm.ModelResponse:
    """An answer in pydantic-ai's types. `own` names the provider when the answer is its own; thinking and seals go back only then."""
    from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

    parts: list[pm.ModelResponsePart] = []
    for block in message.content:
        seal = _unseal(block.signature) if own and block.signature else _Seal()
        beside: dict[str, Any] = {
            "id": seal.id,
            "provider_name": seal.provider_name,
            "provider_details": seal.provider_details,
        }
        if isinstance(block, ToolCallBlock):
            given = clean(block.malformed) or encode(block.arguments).decode()
            parts.append(ToolCallPart(names.to_wire(block.name), given, block.id, **beside))
        elif isinstance(block, ThinkingBlock):
            if own:
                parts.append(ThinkingPart(clean(block.text), signature=seal.signature, **beside))
        elif text := clean(block.text):
            parts.append(TextPart(text, **beside))
    return ModelResponse(parts, provider_name=own, model_name=message.model or None)


def _piece(event: Any) -> StreamChunk | None:
    """What an event of pydantic-ai's shows; most show nothing."""
    part: Any = (
        getattr(event, "part", None)
        if event.event_kind == "part_start"
        else getattr(event, "delta", None)
    )
    kind: str = getattr(part, "part_kind", "") or getattr(part, "part_delta_kind", "")
    fields = _SHOWN.get(kind.replace("_", "-"), ())
    text = next((text for name in fields if (text := getattr(part, name, None))), None)
    if text is None:
        return None
    return StreamChunk(
        "call" if kind.startswith("tool") else kind,
        text if isinstance(text, str) else encode(text).decode(),
    )


_SHOWN = {
    "text": ("content", "content_delta"),
    "thinking": ("content", "content_delta"),
    "tool-call": ("args", "args_delta"),
}


def _answer(response: pm.ModelResponse, names: ToolNames, wire: str) -> AssistantMessage:
    """Our form of a whole answer. Raises Cut when it is not whole."""
    if response.state != "complete":
        raise StreamCut
    content = tuple(_blocks(response.parts, names))
    stop = _STOPS.get(response.finish_reason or "stop", StopReason.OTHER)
    if stop is StopReason.END and any(isinstance(block, ToolCallBlock) for block in content):
        stop = StopReason.CALLS
    return AssistantMessage(
        content,
        stop_reason=stop,
        usage=_usage(response.usage),
        model=response.model_name or "",
        wire=wire,
        id=response.provider_response_id or "",
    )


_STOPS = {
    "stop": StopReason.END,
    "tool_call": StopReason.CALLS,
    "length": StopReason.LENGTH,
    "content_filter": StopReason.REFUSAL,
}


def _blocks(
    parts: Sequence[pm.ModelResponsePart], names: ToolNames
) -> list[TextBlock | ThinkingBlock | ToolCallBlock]:
    from pydantic_ai.messages import TextPart, ThinkingPart, ToolCallPart

    blocks: list[TextBlock | ThinkingBlock | ToolCallBlock] = []
    for part in parts:
        if isinstance(part, TextPart):
            if text := clean(part.content):
                blocks.append(TextBlock(text, _sealed(part)))
        elif isinstance(part, ThinkingPart):
            blocks.append(ThinkingBlock(clean(part.content), _sealed(part)))
        elif isinstance(part, ToolCallPart):
            blocks.append(_call(part, names))
    return blocks


def _call(part: pm.ToolCallPart, names: ToolNames) -> ToolCallBlock:
    given, malformed = parse_arguments(
        part.args if isinstance(part.args, str) else encode(part.args or {}).decode()
    )
    return ToolCallBlock(
        part.tool_call_id, names.from_wire(part.tool_name), given, malformed, _sealed(part)
    )


def _usage(usage: RequestUsage) -> Usage:
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.details.get("reasoning_tokens", 0)
        or usage.details.get("thoughts_tokens", 0),
    )
