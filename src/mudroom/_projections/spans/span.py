"""The values in traces: a span, an event in it, and their attributes.

Attributes are named after OpenTelemetry's conventions for generative AI; those beginning with
`mudroom.` are mudroom's own. `session.id` and `openinference.span.kind` are for viewers that do not
follow the conventions.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ..._core.events import CheckFinished, Compacted, ModelCallRetried, StoredEvent, WorkMerged
from ..._core.messages import AssistantMessage, StopReason, Usage
from ..._core.runs import Brief, find_first_id
from ..._core.tool_names import normalize_tool_name
from ..._core.tools import ToolResult
from ..cache_use import CacheUse, Miss
from ..trace_ids import SpanContext

AttributeValue = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, AttributeValue]


class SpanEvent(Struct, frozen=True):
    name: str
    at: float
    attributes: Attributes = {}


class Span(Struct, frozen=True, kw_only=True):
    """A part of a session's work: a run, a model call or a tool call.

    Arguments:
        parent_id: id of the span above it, 0 for none.
        has_outer_parent: true if that span belongs to another program.
        started_at, ended_at: seconds since 1970.
        first_chunk_at: when the first part of the model's answer arrived; None for a span made from
            a record, which lacks the parts.
    """

    context: SpanContext
    name: str
    started_at: float
    parent_id: int = 0
    has_outer_parent: bool = False
    is_request: bool = False
    ended_at: float = 0.0
    first_chunk_at: float | None = None
    attributes: Attributes = {}
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanContext, ...] = ()
    has_failed: bool = False
    error: str = ""


class OpenSpan:
    """A span that has not ended, with the attributes and events of its end."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.attributes = dict(span.attributes)
        self.events: list[SpanEvent] = []
        self.first_chunk_at: float | None = None

    def close(self, at: float, error_type: str = "", error: str = "") -> Span:
        if error_type:
            self.attributes["error.type"] = error_type
        return replace(
            self.span,
            ended_at=max(at, self.span.started_at),
            first_chunk_at=self.first_chunk_at,
            attributes=self.attributes,
            events=tuple(self.events),
            has_failed=bool(error_type),
            error=error,
        )


# The error type of work cut off by a crash or the end of a process.
INTERRUPTED = "interrupted"

# The conventions' name for a provider, where it differs from mudroom's.
_PROVIDERS = {
    "google": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "xai": "x_ai",
}
_FINISH_REASONS = {
    StopReason.END: "stop",
    StopReason.CALLS: "tool_call",
    StopReason.LENGTH: "length",
    StopReason.REFUSAL: "content_filter",
    StopReason.OTHER: "other",
}


def split_model(model: str) -> tuple[str, str]:
    """Split a model string into provider and model, the first of several."""
    first = model.partition(",")[0]
    provider, colon, name = first.partition(":")
    return _PROVIDERS.get(provider, provider), name if colon else first


def describe_run(session: str, brief: Brief) -> Attributes:
    provider, model = split_model(brief.model)
    attributes: Attributes = {
        **_describe_operation("invoke_agent", "AGENT", session, brief.run_id),
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "gen_ai.agent.name": brief.agent.name,
        "gen_ai.agent.id": f"{session}/{find_first_id(brief.run_id)}",
        "mudroom.run.depth": brief.depth,
    }
    if brief.agent.description:
        attributes["gen_ai.agent.description"] = brief.agent.description
    if brief.agent.outputs:
        attributes["gen_ai.output.type"] = "json"
    if brief.name:
        attributes["mudroom.run.name"] = brief.name
    return attributes


def describe_turn(session: str, brief: Brief, turn: int) -> Attributes:
    provider, model = split_model(brief.model)
    return {
        **_describe_operation("chat", "LLM", session, brief.run_id),
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "gen_ai.request.stream": True,
        "gen_ai.agent.name": brief.agent.name,
        "mudroom.turn": turn,
    }


def describe_answer(answer: AssistantMessage) -> Attributes:
    attributes: Attributes = {
        "gen_ai.response.finish_reasons": (_FINISH_REASONS[answer.stop_reason],),
        **describe_usage(answer.usage),
    }
    if answer.answered_by:
        provider, model = split_model(answer.answered_by)
        attributes["gen_ai.provider.name"] = provider
        attributes["gen_ai.request.model"] = model
    if answer.id:
        attributes["gen_ai.response.id"] = answer.id
    if answer.model:
        attributes["gen_ai.response.model"] = answer.model
    return attributes


def describe_miss(miss: Miss) -> Attributes:
    return {
        "mudroom.cache.missed_tokens": miss.tokens,
        "mudroom.cache.miss_reason": miss.reason.value,
    }


def describe_cache(use: CacheUse) -> Attributes:
    if use.share is None or not (use.read_tokens or use.written_tokens):
        return {}
    attributes: Attributes = {"mudroom.cache.read_share": use.share}
    for reason, tokens in use.misses.items():
        attributes[f"mudroom.cache.missed_tokens.{reason.replace(' ', '_')}"] = tokens
    return attributes


def describe_usage(usage: Usage) -> Attributes:
    attributes: Attributes = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }
    if usage.cache_read_tokens:
        attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cache_read_tokens
    if usage.cache_write_tokens:
        attributes["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_write_tokens
    if usage.reasoning_tokens:
        attributes["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning_tokens
    if usage.usd is not None:
        attributes["mudroom.usage.usd"] = usage.usd
    return attributes


def describe_call(session: str, brief: Brief, call_id: str, tool: str) -> Attributes:
    name = normalize_tool_name(tool)
    attributes: Attributes = {
        **_describe_operation("execute_tool", "TOOL", session, brief.run_id),
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.type": "function",
        "gen_ai.agent.name": brief.agent.name,
    }
    if name.startswith("mcp__"):
        attributes["mcp.method.name"] = "tools/call"
    return attributes


def find_call_error(result: ToolResult, *, is_refused: bool) -> str:
    if is_refused:
        return "refused"
    if not result.error:
        return ""
    return "timeout" if result.detail.get("timed_out") else "tool_error"


def make_span_event(event: StoredEvent) -> SpanEvent | None:
    """Convert a recorded event to an event in a span, if its kind has one."""
    match event:
        case ModelCallRetried():
            attributes: Attributes = {
                "mudroom.attempt": event.attempt,
                "mudroom.delay_seconds": event.delay,
            }
            if event.status:
                attributes["http.response.status_code"] = event.status
            return SpanEvent("mudroom.model_call_retried", event.at, attributes)
        case Compacted():
            attributes = {
                "mudroom.cause": event.cause,
                "mudroom.tokens_before": event.before,
                "mudroom.tokens_after": event.after,
            }
            return SpanEvent("mudroom.compacted", event.at, attributes)
        case WorkMerged():
            attributes = {
                "mudroom.child": event.child,
                "mudroom.state": event.state,
                "mudroom.files": len(event.files),
            }
            return SpanEvent("mudroom.work_merged", event.at, attributes)
        case CheckFinished():
            attributes = {"mudroom.exit_code": event.exit_code, "mudroom.seconds": event.seconds}
            return SpanEvent("mudroom.check_finished", event.at, attributes)
        case _:
            return None


def _describe_operation(operation: str, kind: str, session: str, run_id: str) -> Attributes:
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.conversation.id": session,
        "session.id": session,
        "openinference.span.kind": kind,
        "mudroom.run.id": run_id,
    }
