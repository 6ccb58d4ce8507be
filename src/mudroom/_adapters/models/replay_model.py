"""A model that repeats recorded answers as long as it receives the recorded requests."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from difflib import unified_diff

from ..._core.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    RecordedConversation,
    RecordedFailure,
    TextBlock,
    ToolResultBlock,
    UserMessage,
)
from ..._core.ports import RequestConfig, RetryNotice, StreamChunk
from ...errors import ContextOverflow, ModelError, ModelRefused, ModelUnavailable

_SECONDS = re.compile(r"\b\d+(?:\.\d+)? s\b")
# Part of evidence lines missing in older versions.
_AT_LEAST = re.compile(r"\bat least (?=[\d,]+ tokens)")
_EVIDENCE_GAP = re.compile(r"(?:\n|\\n)(?=(?:\n|\\n)\[evidence: )")  # in a text, or in JSON
_QUOTES = re.compile(r"quoted[ -]")
_PATH = re.compile(r"/[^\s\"]*+")
_SPILL_NAME = re.compile(
    r"\A/.*/(?:(\d[^/]*)-[0-9a-f]{16}|(\d[\d.]*-(?:\d+\.\d+-\w+|record)))(?=\.\w)"
)
"""Path of a spill file, beginning with its run's id. Older versions added no random end."""
_MAX_DIFF = 2_000

ReadConversations = Callable[[], Awaitable[Sequence[RecordedConversation]]]


class ReplayModel:
    """A Model that answers from recorded conversations.

    A request that differs from the recorded one raises ModelRefused with the difference.

    Arguments:
        conversations: the recorded conversations, or a function that reads them. Each is used once,
            so that equal siblings get one each.
        name: the model string.
        stop_run: called with a run's id where the record has no answer because the run was
            stopped; it raises the exception that stops the run, or waits for the stop.
    """

    def __init__(
        self,
        conversations: Sequence[RecordedConversation] | ReadConversations,
        name: str = "replay:record",
        *,
        stop_run: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self.name = name
        self.stop_run = stop_run
        self._source = conversations
        self._unclaimed: list[RecordedConversation] | None = None

    def start_conversation(self, config: RequestConfig) -> ReplayConversation:
        """Start a conversation; its first request selects a recorded one."""
        return ReplayConversation(self)

    async def close(self) -> None:
        """Do nothing; there are no connections."""

    async def load(self) -> list[RecordedConversation]:
        source = self._source
        recorded = await source() if callable(source) else source
        if self._unclaimed is None:
            self._unclaimed = list(recorded)
            self._source = ()
        return self._unclaimed

    async def claim_conversation(self, messages: Sequence[Message]) -> RecordedConversation:
        unclaimed = await self.load()
        for recorded in unclaimed:
            is_long_enough = len(recorded.messages) >= len(messages)
            if is_long_enough and all(map(is_same, recorded.messages, messages)):
                unclaimed.remove(recorded)
                return recorded
        expected = unclaimed[0].messages[: len(messages)] if unclaimed else ()
        raise build_difference_error("a conversation that was not recorded", expected, messages)


class ReplayConversation:
    def __init__(self, model: ReplayModel) -> None:
        self._model = model
        self._messages: list[Message] = []
        self._recorded: RecordedConversation | None = None
        self._failures: list[RecordedFailure] = []

    def append(self, message: Message) -> None:
        self._messages.append(message)

    async def request_answer(
        self, *, tools: bool = True, max_tokens: int | None = None
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        """Yield the recorded answer. Raises ModelError and TimeoutError as recorded."""
        messages = self._messages
        if self._recorded is None:
            self._recorded = await self._model.claim_conversation(messages)
            self._failures.extend(self._recorded.failures)
        recorded = self._recorded
        expected = recorded.messages[: len(messages)]
        if len(expected) < len(messages) or not all(map(is_same, expected, messages)):
            request = sum(isinstance(message, UserMessage) for message in messages)
            where = f"run {recorded.run}, request {request}"
            raise build_difference_error(where, expected, messages)
        answer = next(iter(recorded.messages[len(messages) :]), None)
        if not isinstance(answer, AssistantMessage):
            failure = self._take_failure(recorded.run)
            if failure.partial_text:
                yield StreamChunk("text", failure.partial_text)
            raise await self._repeat_failure(recorded.run, failure)
        if answer.text:
            yield StreamChunk("text", answer.text)
        yield answer

    def _take_failure(self, run_id: str) -> RecordedFailure:
        if self._failures:
            return self._failures.pop(0)
        return RecordedFailure(f"the record of run {run_id} ends here")

    async def _repeat_failure(self, run_id: str, failure: RecordedFailure) -> Exception:
        if failure.stop and self._model.stop_run:
            await self._model.stop_run(run_id)
        if failure.stop == "TIMEOUT":
            return TimeoutError(failure.error)
        if failure.is_overflow:
            return ContextOverflow(failure.error)
        if failure.is_transient:
            return ModelUnavailable(failure.error)
        return ModelError(failure.error or f"the record of run {run_id} ends here")


def is_same(recorded: Message, message: Message) -> bool:
    """Return whether two messages differ at most in measured times and provider-specific fields."""
    return recorded == message or _to_comparable_text(recorded) == _to_comparable_text(message)


def remove_varying_text(text: str) -> str:
    """Remove measured seconds from a text, and folders and random digits from spill files.

    Earlier versions wrote no empty line before the evidence and quoted nothing.
    """
    text = _QUOTES.sub("", _AT_LEAST.sub("", _SECONDS.sub("_ s", text)))
    text = _EVIDENCE_GAP.sub("", text)
    return _PATH.sub(lambda path: _SPILL_NAME.sub(_keep_name, path[0], count=1), text)


def _keep_name(match: re.Match[str]) -> str:
    return match[1] or match[2]


def build_difference_error(
    where: str, recorded: Sequence[Message], messages: Sequence[Message]
) -> ModelRefused:
    missing = [None] * (len(messages) - len(recorded))
    pairs = zip([*recorded, *missing], messages, strict=False)
    differing = ((old, new) for old, new in pairs if old is None or not is_same(old, new))
    expected, actual = next(differing, (None, None))
    lines = unified_diff(
        _to_comparable_text(expected).splitlines(),
        _to_comparable_text(actual).splitlines(),
        "recorded",
        "requested now",
        lineterm="",
        n=1,
    )
    return ModelRefused(f"the replay met {where}:\n" + "\n".join(lines)[:_MAX_DIFF])


def _to_comparable_text(message: Message | None) -> str:
    if message is None:
        return ""
    rows: list[str] = []
    for block in message.content:
        if isinstance(block, TextBlock):
            rows.append(remove_varying_text(block.text))
        elif isinstance(block, ToolResultBlock):
            outcome = "failed" if block.error else "gave"
            rows.append(f"{block.name} {outcome}: {remove_varying_text(block.text)}")
            rows.extend(image.placeholder for image in block.images)
        elif isinstance(block, ImageBlock):
            rows.append(block.placeholder)
        else:
            rows.append(repr(block))
    return "\n".join(rows)
