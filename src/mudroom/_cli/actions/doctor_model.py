"""What a model and its server can do, found out with one small request that offers one tool."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from ..._adapters.models._written_calls import WRITTEN_CALL
from ..._adapters.models.pricing import calculate_cost
from ..._core.messages import AssistantMessage, ThinkingBlock, Usage, user_message
from ..._core.ports import Model, RequestConfig, RetryNotice
from ..._core.tools import Tool, ToolResult
from ..._platform.time_limits import SystemClock, time_limit
from ..._session.context_windows import ContextWindows
from ..._session.model_registry import ModelRegistry
from ...errors import MudroomError, UsageError


class Check(Struct, frozen=True):
    """The result of one check.

    Arguments:
        name: subject of the check. state: "ok", "warn" (mudroom works without it) or "fail".
        result: one sentence. remedy: what to do about it, "" for nothing.
    """

    name: str
    state: str
    # The key in the JSON output, which scripts read: it must not change.
    result: str = field(name="found")
    remedy: str = ""


REQUEST = "model request"
# Local servers may first load the model.
_SECONDS = 60
# Tokens. A model that reasons needs some before it calls the tool.
_MAX_TOKENS = 2_048
_PROMPT = "Call the tool `note` once, with the text ok. Then you are done."
_START_PARSER = (
    "Start the server with a tool parser (vLLM: --enable-auto-tool-choice and --tool-call-parser, "
    "llama.cpp: --jinja), or use another model."
)


async def _refuse_call(_context: object, _arguments: object) -> ToolResult:
    return ToolResult("noted")


_TOOL = Tool(
    name="note",
    description="Keeps a text.",
    parameters={
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
    parse=dict,
    run=_refuse_call,
)


async def check_request(model: str, environ: Mapping[str, str]) -> Check:
    """Send a model one request without tools."""
    registry = _open_registry(environ)
    try:
        _, seconds, _ = await _ask(registry.get_model(model), RequestConfig(system=""))
    except (MudroomError, TimeoutError) as error:
        return _describe_failure(model, error)
    finally:
        await registry.close()
    return Check(REQUEST, "ok", f"{model} answers in {seconds:.1f} s")


async def check_model(name: str, environ: Mapping[str, str]) -> list[Check]:
    """Send a model one request with a tool, and list its abilities and those of its server."""
    registry = _open_registry(environ)
    try:
        await registry.ask_servers(name)
        model = registry.get_model(name)
        config = RequestConfig(system="", tools=(_TOOL,), max_tokens=_MAX_TOKENS)
        answer, seconds, notices = await _ask(model, config)
    except (MudroomError, TimeoutError) as error:
        return [_describe_failure(name, error)]
    finally:
        await registry.close()
    served = f" as {answer.model}" if answer.model and answer.model not in model.name else ""
    checks = [Check(REQUEST, "ok", f"{model.name} answers{served} in {seconds:.1f} s")]
    checks += [Check("repaired request", "warn", notice.error) for notice in notices]
    return [*checks, _check_tools(answer), *_list_abilities(registry, model, answer)]


def _open_registry(environ: Mapping[str, str]) -> ModelRegistry:
    return ModelRegistry(environ, SystemClock(), _refuse_replay)


def _refuse_replay(name: str) -> Model:
    # The doctor asks servers only.
    raise UsageError(f"{name} is no model of a server")


async def _ask(
    model: Model, config: RequestConfig
) -> tuple[AssistantMessage, float, list[RetryNotice]]:
    """Return the answer, the seconds it took, and what had to be repaired before it."""
    started_at = time.monotonic()
    notices: list[RetryNotice] = []
    answer = AssistantMessage(())
    async with time_limit(_SECONDS):
        conversation = model.start_conversation(config)
        conversation.append(user_message(_PROMPT if config.tools else "Say hello."))
        async for item in conversation.request_answer():
            if isinstance(item, AssistantMessage):
                answer = item
            elif isinstance(item, RetryNotice):
                notices.append(item)
    return answer, time.monotonic() - started_at, notices


def _describe_failure(model: str, error: Exception) -> Check:
    if isinstance(error, MudroomError):
        remedy = getattr(error, "remedy", "") or "See the log of the server."
        return Check(REQUEST, "fail", getattr(error, "message", str(error)), remedy)
    problem = f"{model} gave no answer within {_SECONDS} seconds"
    return Check(REQUEST, "fail", problem, "Try again when the server has loaded the model.")


def _check_tools(answer: AssistantMessage) -> Check:
    calls = answer.tool_calls
    if any(call.name == _TOOL.name and call.arguments.get("text") for call in calls):
        return Check("tools", "ok", "it called the offered tool, and the server parsed the call")
    if answer.provider_stop_reason == WRITTEN_CALL:
        result = "the server does not parse calls: the call arrived as text"
        return Check("tools", "fail", result, _START_PARSER)
    if calls:
        result = f"it called {calls[0].name} with arguments that do not fit the tool"
        return Check("tools", "warn", result, "Expect failed calls, or use another model.")
    result = "it answered in words, although it was asked to call a tool"
    return Check("tools", "warn", result, "Try again, or use another model.")


def _list_abilities(
    registry: ModelRegistry, model: Model, answer: AssistantMessage
) -> Iterator[Check]:
    name = model.name
    yield Check("reasoning", "ok", _describe_reasoning(answer))
    images = getattr(model, "takes_images", None)
    if images is not None:
        yield Check("images", "ok", "it gets images" if images else "it gets text in their place")
    windows = ContextWindows(registry)
    window = windows.find(name) or windows.look_up(name)
    if window:
        yield Check("context window", "ok", f"{window:,} tokens")
    # Of a short request: some models cost more from some length on.
    read, written = (calculate_cost(name, usage) for usage in (Usage(1_000), Usage(0, 1_000)))
    if read is None or written is None:
        remedy = "Limits in dollars do not work with it: limit its tokens."
        yield Check("price", "warn", "not known", remedy)
    else:
        read, written = 1_000 * read, 1_000 * written
        result = f"${read:.2f} per million tokens read, ${written:.2f} per million written"
        yield Check("price", "ok", result)


def _describe_reasoning(answer: AssistantMessage) -> str:
    blocks = [block for block in answer.content if isinstance(block, ThinkingBlock)]
    if not blocks:
        tokens = answer.usage.reasoning_tokens
        return f"{tokens:,} tokens, which the server does not show" if tokens else "none seen"
    field, _, _ = blocks[0].signature.partition(":")
    if field in ("reasoning_content", "reasoning_details"):
        return f"in the field {field}"
    return "signed by the provider" if blocks[0].signature else "shown, without a signature"
