"""Many more providers through pydantic-ai, imported only when used."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from ..._core.budgets import choose_smaller
from ..._core.messages import (
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
)
from ..._core.ports import Clock, RateLimited, RateLimiter, RequestConfig, RetryNotice, StreamChunk
from ...errors import ModelGarbled, ModelRefused, ModelUnavailable, UsageError
from ._errors import (
    ProviderHints,
    RequestFailure,
    build_final_error,
    choose_delay,
    classify_status,
    extract_error_text,
)
from ._http import StreamCut
from ._images import replace_unsent_images
from ._json import clean, encode, parse_arguments
from ._rate_limit import MAX_WAIT, AdaptiveRateLimiter
from ._tool_names import ToolNames
from ._wire import describe_stop, get_sampling, warn_unsent_sampling
from .model_facts import ModelFacts, find_facts

if TYPE_CHECKING:
    from pydantic_ai import messages as pm
    from pydantic_ai.exceptions import ModelHTTPError
    from pydantic_ai.models import Model as Backend
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.usage import RequestUsage

_MAX_TRIES = 6


class PydanticAIModel:
    """A pydantic-ai model; pydantic-ai reads keys and addresses itself, as it documents.

    Arguments:
        model: "provider:model" in pydantic-ai's notation, or a model object of pydantic-ai, which
            the caller closes.
        jitter: returns a random number from 0 to 1, for the delay between attempts.
        takes_images: false sends placeholders.
        hints: None derives them from the model.
        limiter: shared with the provider's other models; None gives the model its own.
    """

    def __init__(
        self,
        model: str | Backend,
        *,
        clock: Clock,
        jitter: Callable[[], float] = random.random,
        takes_images: bool = True,
        hints: ProviderHints | None = None,
        limiter: RateLimiter | None = None,
    ) -> None:
        self.name = model if isinstance(model, str) else f"{model.system}:{model.model_name}"
        self.clock = clock
        self.jitter = jitter
        self.takes_images = takes_images
        self.hints = hints
        self.rate_limiter = limiter or AdaptiveRateLimiter(clock)
        self._model = model
        self._owns_model = False
        self.unsent: set[str] = set()

    def start_conversation(self, config: RequestConfig) -> PydanticAIConversation:
        """Raise UsageError when pydantic-ai, or a package it needs for the provider, is missing."""
        if isinstance(self._model, str):
            self._model = _create_backend(self._model)
            self._owns_model = True
        facts = find_facts(self._model.model_name)
        warn_unsent_sampling(self.name, config, facts, self.unsent)
        return PydanticAIConversation(self, self._model, config)

    async def close(self) -> None:
        if self._owns_model and not isinstance(self._model, str):
            # pydantic-ai has no `close`: leaving a model's last context closes its connections.
            async with self._model:
                pass


class PydanticAIConversation:
    """A conversation in pydantic-ai's types; each message is converted once."""

    def __init__(self, model: PydanticAIModel, backend: Backend, config: RequestConfig) -> None:
        self._model = model
        self._backend = backend
        self._names = ToolNames(tool.name for tool in config.tools)
        self._wire = f"library:{backend.system}"
        self._parameters = _convert_parameters(config, self._names)
        self._settings = _convert_settings(config, find_facts(backend.model_name))
        self._messages: list[pm.ModelMessage] = []

    def append(self, message: Message) -> None:
        if isinstance(message, UserMessage):
            if not self._model.takes_images:
                message = replace_unsent_images(message, self._model.name, self._model.unsent)
            converted = to_model_request(message, self._names)
        else:
            own_provider = self._backend.system if message.wire == self._wire else None
            converted = to_model_response(message, self._names, own_provider)
        if converted.parts:
            self._messages.append(converted)

    async def request_answer(
        self, *, tools: bool = True, max_tokens: int | None = None
    ) -> AsyncGenerator[StreamChunk | RetryNotice | AssistantMessage, None]:
        model = self._model
        attempt = 0
        while True:
            attempt += 1
            try:
                async with aclosing(self._send_once(tools, max_tokens)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except RequestFailure as failure:
                is_last = attempt == _MAX_TRIES or failure.retry_after > MAX_WAIT
                if not failure.is_retryable or is_last:
                    raise build_final_error(failure, attempt) from failure.__cause__
                delay = max(failure.retry_after, choose_delay(attempt, model.jitter()))
                notice = RetryNotice(attempt, delay, failure.status, failure.error.message)
            yield notice
            await model.clock.sleep(notice.delay)

    async def _send_once(
        self, tools: bool, max_tokens: int | None
    ) -> AsyncGenerator[StreamChunk | AssistantMessage, None]:
        from pydantic_ai import direct

        limit = choose_smaller(self._settings["max_tokens"], max_tokens)
        settings = {**self._settings, "max_tokens": limit}
        if not tools and self._parameters.function_tools:
            settings = {**settings, "tool_choice": "none"}
        rate_limiter = self._model.rate_limiter
        try:
            slot = await rate_limiter.acquire()
        except RateLimited as limited:
            raise self._classify_status(429, "", b"", limited.seconds) from None
        try:
            async with direct.model_request_stream(
                self._backend,
                self._messages,
                model_settings=cast("ModelSettings", settings),
                model_request_parameters=self._parameters,
            ) as stream:
                rate_limiter.record_accepted(slot)
                async for event in stream:
                    if (chunk := convert_event(event)) is not None:
                        yield chunk
                answer = convert_answer(stream.get(), self._names, self._wire)
            yield answer
        except Exception as error:
            # The providers' packages raise errors of many types without a common base.
            failure = self._classify(error)
            if failure.is_load:
                rate_limiter.record_refused(slot, failure.retry_after)
            raise failure from error
        finally:
            rate_limiter.release(slot)

    def _classify(self, error: Exception) -> RequestFailure:
        from pydantic_ai import exceptions

        name = self._model.name
        if isinstance(error, exceptions.ModelHTTPError):
            return self._classify_http_error(error)
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
            garbled = ModelGarbled(f"{name} gave an invalid answer: {error}")
            return RequestFailure(0, garbled, is_retryable=True)
        if isinstance(error, exceptions.ModelAPIError | OSError | TimeoutError | StreamCut):
            unavailable = ModelUnavailable(
                f"{name} did not answer: {error}", remedy="Try again later."
            )
            retry_after = getattr(error, "retry_after", None) or 0.0
            return RequestFailure(0, unavailable, is_retryable=True, retry_after=retry_after)
        return RequestFailure(0, ModelGarbled(f"{name} failed: {type(error).__name__}: {error}"))

    def _classify_http_error(self, error: ModelHTTPError) -> RequestFailure:
        body = msgspec.json.encode(error.body, enc_hook=str) if error.body else b""
        text = extract_error_text(body) if body else ""
        return self._classify_status(error.status_code, text, body, error.retry_after or 0.0)

    def _classify_status(
        self, status: int, text: str, body: bytes, retry_after: float
    ) -> RequestFailure:
        system = self._backend.system
        return classify_status(
            self._model.hints or ProviderHints(system),
            self._backend.base_url or f"pydantic-ai://{system}",
            status,
            text,
            headers={"retry-after": str(retry_after)},
            body=body,
        )


_INSTALL = "Install it: pip install 'mudroom[providers]'"


def _create_backend(model: str) -> Backend:
    try:
        from pydantic_ai.models import infer_model
    except ImportError as error:
        raise UsageError(
            f"{model} needs pydantic-ai, which is not installed", remedy=_INSTALL
        ) from error
    try:
        return infer_model(model)
    except ImportError as error:  # its text names an extra of pydantic-ai
        missing = getattr(error.__cause__, "name", None) or error.name
        package = f", {missing}," if missing else ""
        raise UsageError(
            f"{model} needs a package{package} that is not installed", remedy=_INSTALL
        ) from error
    except Exception as error:
        # The providers' packages raise errors of many types, for example for a missing key.
        remedy = _suggest_region(model, error)
        raise UsageError(f"pydantic-ai cannot use {model}: {error}", remedy=remedy) from error


def _suggest_region(model: str, error: Exception) -> str:
    if not model.startswith("bedrock:") or "region" not in str(error):
        return ""
    return "Set AWS_DEFAULT_REGION to the region of the model, for example to us-east-1."


def _convert_parameters(config: RequestConfig, names: ToolNames) -> ModelRequestParameters:
    from pydantic_ai.messages import InstructionPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    tools = [
        ToolDefinition(
            name=names.to_wire(tool.name),
            parameters_json_schema=tool.parameters,
            description=tool.description,
        )
        for tool in config.tools
    ]
    system = clean(config.system)
    instructions = [InstructionPart(system)] if system else []
    return ModelRequestParameters(function_tools=tools, instruction_parts=instructions)


def _convert_settings(config: RequestConfig, facts: ModelFacts) -> dict[str, Any]:
    max_tokens = facts.choose_max_tokens(config.max_tokens)
    sampling = get_sampling(config, facts)
    # Retries are counted and announced here instead of being hidden in the provider's package. The
    # package marks prompts for the caches that need it: Claude's and Nova's at Bedrock.
    return {"max_tokens": max_tokens, "max_retries": 0, "cache": True, **sampling}


_STOP_REASONS = {
    "stop": StopReason.END,
    "tool_call": StopReason.CALLS,
    "length": StopReason.LENGTH,
    "content_filter": StopReason.REFUSAL,
}
# Kind of a part or delta -> the fields that may hold its text.
_TEXT_FIELDS = {
    "text": ("content", "content_delta"),
    "thinking": ("content", "content_delta"),
    "tool-call": ("args", "args_delta"),
}


class _Signature(Struct, omit_defaults=True):
    """Fields of a part that pydantic-ai sends back to the provider that made it."""

    id: str | None = None
    signature: str | None = None
    provider_name: str | None = None
    provider_details: dict[str, Any] | None = None


_decode_signature = msgspec.json.Decoder(_Signature).decode


def _encode_signature(part: pm.TextPart | pm.ThinkingPart | pm.ToolCallPart) -> str:
    signature = _Signature(
        part.id, getattr(part, "signature", None), part.provider_name, part.provider_details
    )
    if signature == _Signature():
        return ""
    return msgspec.json.encode(signature, enc_hook=str).decode()


def to_model_request(message: UserMessage, names: ToolNames) -> pm.ModelRequest:
    """Convert a user message: tool results first, then all texts and images as one prompt."""
    from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart

    parts: list[pm.ModelRequestPart] = []
    prompt: list[pm.UserContent] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            text = clean(block.text)
            images = [_to_binary_content(image) for image in block.images]
            parts.append(
                ToolReturnPart(
                    names.to_wire(block.name),
                    [text, *images] if images else text,
                    block.call_id,
                    outcome="failed" if block.error else "success",
                )
            )
        elif isinstance(block, ImageBlock):
            prompt.append(_to_binary_content(block))
        elif text := clean(block.text):
            prompt.append(text)
    if any(not isinstance(item, str) for item in prompt):
        parts.append(UserPromptPart(prompt))
    elif prompt:
        parts.append(UserPromptPart("\n\n".join(map(str, prompt))))
    return ModelRequest(parts)


def _to_binary_content(image: ImageBlock) -> pm.BinaryContent:
    from pydantic_ai.messages import BinaryContent

    return BinaryContent(image.data, media_type=image.media_type)


def to_model_response(
    message: AssistantMessage, names: ToolNames, own_provider: str | None
) -> pm.ModelResponse:
    """Convert an answer; thinking and signatures go back only to the provider that made them."""
    from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

    parts: list[pm.ModelResponsePart] = []
    for block in message.content:
        if isinstance(block, ProviderBlock):
            continue
        signature = _Signature()
        if own_provider and block.signature:
            signature = _decode_signature(block.signature)
        fields: dict[str, Any] = {
            "id": signature.id,
            "provider_name": signature.provider_name,
            "provider_details": signature.provider_details,
        }
        if isinstance(block, ToolCallBlock):
            arguments = clean(block.malformed) or encode(block.arguments).decode()
            parts.append(ToolCallPart(names.to_wire(block.name), arguments, block.id, **fields))
        elif isinstance(block, ThinkingBlock):
            if own_provider:
                text = clean(block.text)
                parts.append(ThinkingPart(text, signature=signature.signature, **fields))
        elif text := clean(block.text):
            parts.append(TextPart(text, **fields))
    return ModelResponse(parts, provider_name=own_provider, model_name=message.model or None)


def convert_event(event: pm.ModelResponseStreamEvent) -> StreamChunk | None:
    field = "part" if event.event_kind == "part_start" else "delta"
    part: Any = getattr(event, field, None)
    kind: str = getattr(part, "part_kind", "") or getattr(part, "part_delta_kind", "")
    for name in _TEXT_FIELDS.get(kind.replace("_", "-"), ()):
        text = getattr(part, name, None)
        if not text:
            continue
        if not isinstance(text, str):
            text = encode(text).decode()
        return StreamChunk("call" if kind.startswith("tool") else kind, text)
    return None


def convert_answer(response: pm.ModelResponse, names: ToolNames, wire: str) -> AssistantMessage:
    if response.state != "complete":
        raise StreamCut
    content = tuple(_convert_parts(response.parts, names))
    own_reason = response.finish_reason or "stop"
    return AssistantMessage(
        content,
        usage=_convert_usage(response.usage),
        model=response.model_name or "",
        wire=wire,
        id=response.provider_response_id or "",
        **describe_stop(own_reason, _STOP_REASONS, content),
    )


def _convert_parts(
    parts: Sequence[pm.ModelResponsePart], names: ToolNames
) -> list[TextBlock | ThinkingBlock | ToolCallBlock]:
    from pydantic_ai.messages import TextPart, ThinkingPart, ToolCallPart

    blocks: list[TextBlock | ThinkingBlock | ToolCallBlock] = []
    for part in parts:
        if isinstance(part, TextPart):
            if text := clean(part.content):
                blocks.append(TextBlock(text, _encode_signature(part)))
        elif isinstance(part, ThinkingPart):
            blocks.append(ThinkingBlock(clean(part.content), _encode_signature(part)))
        elif isinstance(part, ToolCallPart):
            blocks.append(_convert_call(part, names))
    return blocks


def _convert_call(part: pm.ToolCallPart, names: ToolNames) -> ToolCallBlock:
    text = part.args if isinstance(part.args, str) else encode(part.args or {}).decode()
    arguments, malformed = parse_arguments(text)
    return ToolCallBlock(
        part.tool_call_id,
        names.from_wire(part.tool_name),
        arguments,
        malformed,
        _encode_signature(part),
    )


def _convert_usage(usage: RequestUsage) -> Usage:
    details = usage.details
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=details.get("reasoning_tokens", 0) or details.get("thoughts_tokens", 0),
    )
