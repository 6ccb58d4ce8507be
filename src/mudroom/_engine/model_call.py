"""One model call: request, stream, complete answer, charge."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .._core.budgets import Limit, LimitState
from .._core.events import CUT_OFF, ModelCallRetried, TurnFailed, TurnFinished, TurnStarted
from .._core.json_values import clean_text
from .._core.messages import (
    AssistantBlock,
    AssistantMessage,
    StopReason,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
    clean_answer,
    estimate_message_tokens,
)
from .._core.ports import RetryNotice, StreamChunk
from .._core.runs import Reason
from .._core.tool_names import normalize_tool_name
from .._core.tools import ToolCategory
from .._projections.safe_text import redact_answer
from ..errors import ContextOverflow, ModelError, ModelGarbled, ModelUnavailable
from .conversation import RunTurn
from .meters.account import RequestPlan
from .meters.pool import SHORTEST_SUMMARY
from .run_context import RunContext
from .session_context import SessionServices

if TYPE_CHECKING:
    from typing import Self

MAX_CALLS = 10_000  # in one answer

SILENCE_SECONDS = 150.0
"""Seconds without a chunk until the call is abandoned.

Wires abandon silent connections sooner, and retry.
"""

FIRST_CHUNK_SECONDS = 300.0
"""Additional seconds for the first chunk: the provider may queue the request."""

WAIT_SECONDS = 1.0  # until a run that waits for a limit says so

WAITS_FOR_LIMIT = "waits: {limit} does not cover another request beside those under way"

NOTES_TRIES = 2  # requests for a compaction's notes; then the run continues without them
_MIN_ANSWER = 16  # tokens; providers refuse requests for less
_MIN_SECRET_PART = 16  # characters; a shorter start of a secret may be shown

_MILLION = 1_000_000
_INPUT_LIMITS = (Limit.INPUT_TOKENS, Limit.TOTAL_TOKENS)


async def call_model(run: RunContext, *, summary_reason: Reason | None = None) -> AssistantMessage:
    """Request the next answer, append it to the conversation and return it.

    Call `reserve_request` first. The answer is stored with the next `record`, before any of its
    tool calls acts. A turn with `summary_reason`, the reason why the run ends, has no tools.

    Raises ModelError after storing the failure, TimeoutError if the model is silent for too long.
    """
    recorder = run.recorder
    run.go_to_turn(run.turn.number + 1)
    permit = run.meter.permit
    max_tokens = permit.max_tokens if permit and summary_reason is None else None
    recorder.record_later(
        recorder.make_event(TurnStarted, summary_reason=summary_reason, max_tokens=max_tokens),
        show=True,
    )
    started_at = run.services.clock.monotonic()
    try:
        answer = await _read_answer(run, is_summary=summary_reason is not None)
        answer = run.conversation.ensure_unique_call_ids(answer, run.turn.number)
        charge(run, answer)
    except ModelError as error:
        # A provider that refuses a request counts no tokens.
        failure = _close_failed_call(run, error, is_cut=run.conversation.received is not None)
        if failure.overflow and summary_reason is None:
            # Before anything can stop the run, so that it always ends in the turn before.
            run.meter.add_turns(-1)
            run.go_to_turn(run.turn.number - 1)
        await recorder.record(failure)
        raise
    except BaseException as error:  # a limit, a cancel, silence, or a fault of the adapter
        recorder.record_later(_close_failed_call(run, error, is_cut=True))
        raise
    finally:
        run.meter.end_request()
    seconds = round(run.services.clock.monotonic() - started_at, 3)
    run.timer.learn(seconds)
    recorder.record_later(recorder.make_event(TurnFinished, message=answer, seconds=seconds))
    append_answer(run, answer)
    return answer


def append_answer(run: RunContext, answer: AssistantMessage) -> None:
    tokens = answer.usage.total_tokens
    is_cut = answer.stop_reason is StopReason.LENGTH
    run.conversation.cut.may_be_longer = is_cut and run.require_longer_answer(answer)
    if not tokens:
        # Some providers report no usage.
        tokens = run.estimate_request_tokens() + estimate_message_tokens([answer])
    run.conversation.append_answer(answer, tokens)
    calls = answer.tool_calls
    run.outputs.begin_answer(calls)
    run.turn = RunTurn(run.turn.number, calls)


def charge(run: RunContext, answer: AssistantMessage) -> None:
    model = answer.answered_by or run.brief.model
    usd = run.compute_price(model, answer.usage)
    run.meter.charge(answer.usage, usd)
    if run.meter.permit is not None:
        run.meter.learn(answer.usage, usd)


async def reserve_request(run: RunContext, *, is_summary: bool = False) -> LimitState | None:
    """Wait until the limits allow the next request, and count its turn.

    Returns the limit that refuses the request, if one does. The reservation ends with `call_model`
    or `Meter.end_request`.
    """
    meter = run.meter
    if not is_summary:
        if exceeded := meter.find_exceeded_limit(run.timer.age):
            return exceeded
        if run.timer.is_timed:
            if shortage := run.timer.find_shortage():
                return shortage
            run.timer.update_deadline()
    if meter.has_shared_limits:
        with _say_if_it_waits(run), run.timer.wait():
            return await run.services.meters.gate.reserve(meter, _plan_request(run, is_summary))
    meter.permit = None
    if not is_summary:
        meter.add_turns(1)
    return None


@contextmanager
def _say_if_it_waits(run: RunContext) -> Generator[None]:
    """Show that the run is waiting for a limit, unless the wait is short."""
    accounts = [account for meter in run.meter.walk_up() for account in meter.accounts.values()]
    limit = "a shared limit"  # of runs in another process, which keeps its accounts
    if accounts:
        outermost = accounts[-1]  # shared by most runs, so the likeliest to be waited for
        limit = f"the limit of {outermost.maximum:,.7g} {outermost.limit.unit}"
    text = WAITS_FOR_LIMIT.format(limit=limit)
    loop = asyncio.get_running_loop()
    notice = loop.call_later(WAIT_SECONDS, run.recorder.show_delta, "waiting", text)
    try:
        yield
    finally:
        notice.cancel()


def _plan_request(run: RunContext, is_summary: bool) -> RequestPlan:
    repeated = run.compute_repeated_range().minimum
    tokens = run.compute_request_range()
    most = tokens.maximum
    minimum: dict[Limit, float] = dict.fromkeys(_INPUT_LIMITS, tokens.minimum)
    maximum: dict[Limit, float] = dict.fromkeys(_INPUT_LIMITS, most)
    prices = {Limit.OUTPUT_TOKENS: 1.0, Limit.TOTAL_TOKENS: 1.0}
    if run.meter.compute_amount_left(Limit.USD) is not None:
        # The provider may write the whole request to its cache. Reads from the cache are expected
        # only once the provider has shown that it has one: a request that exceeds the limit leaves
        # nothing for the last turn.
        last = run.meter.member.last
        repeated = repeated if last and last.is_cached else 0
        cached = Usage(input_tokens=tokens.minimum, cache_read_tokens=repeated)
        written = Usage(input_tokens=most, cache_write_tokens=most)
        minimum[Limit.USD] = _compute_price(run, cached)
        maximum[Limit.USD] = max(
            _compute_price(run, written), _compute_price(run, Usage(input_tokens=most))
        )
        prices[Limit.USD] = _compute_price(run, Usage(output_tokens=_MILLION)) / _MILLION
    cut = run.conversation.cut
    required = cut.required if cut.may_be_longer else 0
    return RequestPlan(
        minimum,
        maximum,
        prices,
        min_answer=SHORTEST_SUMMARY if is_summary else max(_MIN_ANSWER, required),
        max_answer=run.longest_answer,
        is_summary=is_summary,
        is_child=run.brief.depth > 0,
        size=most,
    )


def _compute_price(run: RunContext, usage: Usage) -> float:
    return run.compute_price(run.brief.model, usage) or 0.0


def _close_failed_call(run: RunContext, error: BaseException, *, is_cut: bool) -> TurnFailed:
    """Charge the estimated tokens of a cut-off call, and return its event.

    The real tokens are unknown. If the model has no price, so are the costs.
    """
    usd = None if run.compute_price(run.brief.model, Usage(1, 1)) is None else 0.0
    estimate = _estimate_usage(run) if is_cut else Usage()
    text = _redact_cut_text(run.services, run.conversation.streamed_text)
    run.meter.charge(Usage(), usd, estimate)
    return run.recorder.make_event(
        TurnFailed,
        error=clean_text(str(error)) or CUT_OFF,
        transient=isinstance(error, ModelUnavailable),
        text=run.conversation.keep_partial_answer(text),
        overflow=max(1, run.estimate_request_tokens()) if isinstance(error, ContextOverflow) else 0,
        estimate=estimate,
    )


def _redact_cut_text(services: SessionServices, text: str) -> str:
    """Redact a text that may have been cut off inside a secret."""
    end = services.find_unfinished_secret(text)
    tail = text[end:]
    # A few characters give nothing away, and usually begin an ordinary word.
    kept = tail if len(tail) < _MIN_SECRET_PART else "[redacted: cut off]"
    return services.redact(text[:end] + kept)


def _estimate_usage(run: RunContext) -> Usage:
    tokens = max(1, run.estimate_request_tokens())
    usage = Usage(tokens, run.conversation.count_streamed_tokens())
    return replace(usage, usd=_compute_price(run, usage)) if run.uses_prices else usage


async def _read_answer(run: RunContext, *, is_summary: bool) -> AssistantMessage:
    max_tokens = run.allowed_answer
    items = run.conversation.request_answer(tools=not is_summary, max_tokens=max_tokens)
    answer: AssistantMessage | None = None
    failed = 0
    watch = run.services.silence_watch.watch_call(SILENCE_SECONDS + FIRST_CHUNK_SECONDS)
    with _Stream(run) as stream, watch as call:
        async for item in items:
            if isinstance(item, StreamChunk):
                call.extend(SILENCE_SECONDS)
                text = clean_text(item.text)
                run.conversation.add_streamed(item.kind, text)
                if item.kind:
                    stream.feed(item.kind, text)
            elif isinstance(item, RetryNotice):
                call.extend(item.delay + FIRST_CHUNK_SECONDS + SILENCE_SECONDS)
                run.conversation.discard_streamed()
                stream.discard()
                failed += item.delay > 0  # a retry without a delay only avoids a refusal
                _check_tries(run, item, failed)
                await _record_retry(run, item)
            else:
                answer = item
    if answer is None:
        raise ModelGarbled("the model's answer ended before it was whole", where=run.brief.model)
    count = len(answer.content)
    if count > MAX_CALLS and (count := len(answer.tool_calls)) > MAX_CALLS:
        raise ModelGarbled(
            f"the answer has {count:,} tool calls; at most {MAX_CALLS:,} are allowed",
            where=run.brief.model,
        )
    return redact_answer(
        clean_answer(answer), run.services.redact, lambda block: _must_stay(run, block)
    )


def _must_stay(run: RunContext, block: AssistantBlock) -> bool:
    """Return whether a block of an answer must be recorded exactly as written.

    Calls that act must do what the model asked for, even after a resume. The arguments of the
    others are words: for children, for the board, or values that the run emits. A provider refuses
    reasoning that differs from what it signed.
    """
    if isinstance(block, ThinkingBlock):
        return bool(block.signature)
    if not isinstance(block, ToolCallBlock) or block.malformed:
        return False
    name = block.name if block.name in run.tools else normalize_tool_name(block.name)
    tool = run.tools.get(name)
    return tool is None or tool.category not in (ToolCategory.AGENT, ToolCategory.BOARD)


class _Stream:
    """Streams the answer to the watchers, and finds secrets even if split into several chunks.

    A context manager that shows the text held back when it exits.
    """

    def __init__(self, run: RunContext) -> None:
        self._services = run.services
        self._show = run.recorder.show_delta
        self._kind = ""
        self._pending = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, _: object) -> None:
        if error is not None:
            self._pending = _redact_cut_text(self._services, self._pending)
        self.flush()

    def feed(self, kind: str, text: str) -> None:
        """Show a chunk, holding back what may be the start of a secret."""
        if kind != self._kind:
            self.flush()
            self._kind = kind
        if not self._services.watchers.functions:
            return
        self._pending += text
        # Only answers arrive in pieces; any other line is whole.
        is_answer = kind in ("text", "thinking")
        end = self._services.find_unfinished_secret(self._pending) if is_answer else len(text)
        if end or not text:
            self._show(kind, self._services.redact(self._pending[:end]))
            self._pending = self._pending[end:]

    def flush(self) -> None:
        if self._pending:
            self._show(self._kind, self._services.redact(self._pending))
        self._pending = ""

    def discard(self) -> None:
        self._pending = ""


def _check_tries(run: RunContext, retry: RetryNotice, failed: int) -> None:
    """Raise ModelUnavailable once a run that only writes notes has tried often enough."""
    writes_notes = run.brief.is_compaction and run.brief.parent
    if writes_notes and failed >= NOTES_TRIES:
        raise ModelUnavailable(f"{retry.error}, tried {failed} times")


async def _record_retry(run: RunContext, retry: RetryNotice) -> None:
    event = run.recorder.make_event(
        ModelCallRetried,
        attempt=retry.attempt,
        delay=retry.delay,
        status=retry.status,
        error=retry.error,
    )
    await run.recorder.record(event)
