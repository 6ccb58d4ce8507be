"""How much of the prompts came from the providers' caches, and why the rest did not.

Each request repeats the one before it, so the provider could have read all of that from its cache.
The part it did not read is a miss; new text is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct, field

from .._core.events import (
    AnyEvent,
    Compacted,
    ResultsCleared,
    RunStarted,
    TurnFinished,
    TurnStarted,
)
from .._core.messages import AssistantMessage, Usage
from .._core.runs import Brief


class MissReason(StrEnum):
    """Why a provider did not read from its cache what an earlier request had sent."""

    EXPIRED = "expired"
    """The run waited longer than the provider keeps an entry."""
    SHORTENED = "shortened"
    """The conversation was compacted, or old results were cleared."""
    OTHER_MODEL = "other model"
    """A different model answered than before."""
    NO_TOOLS = "no tools"
    """The last turn forbids tool calls, which Anthropic does not read past."""
    TOO_SHORT = "too short"
    """The prompt was smaller than the provider's minimum for caching."""
    NOT_REPORTED = "not reported"
    """None of the model's answers reported any cache use."""
    NOT_KEPT = "not kept"
    """The provider did not have the entry, though it should have."""


class CacheUse(Struct, frozen=True, kw_only=True):
    """Prompt cache use by one run, or by all of a session's runs.

    Arguments:
        share: the fraction of prompts read from a cache, 0 to 1; None if there was no prompt.
        input_tokens: all prompts, as the providers counted them.
        read_tokens: the part read from a cache.
        written_tokens: the part written to one at an extra price.
        misses: tokens sent by an earlier request but not read, by reason.

    Example:
        Ledger.from_events(events).cache.share
    """

    share: float | None = None
    input_tokens: int = 0
    read_tokens: int = 0
    written_tokens: int = 0
    misses: Mapping[str, int] = field(default_factory=dict[str, int])


class Miss(Struct, frozen=True):
    tokens: int
    reason: MissReason


class CacheUseFold:
    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._reporting: set[str] = set()

    def apply(self, event: AnyEvent) -> Miss | None:
        """Add an event; return what its request missed, None for nothing."""
        if isinstance(event, RunStarted):
            self._start_run(event.brief)
            return None
        run = self._runs.get(event.run)
        if run is None:
            return None
        if isinstance(event, TurnFinished):
            usage = event.message.usage
            if usage.cache_read_tokens or usage.cache_write_tokens:
                self._reporting.add(_find_model(event.message))
            return run.add_answer(event)
        if isinstance(event, TurnStarted):
            run.forbids_tools = event.summary_reason is not None
        elif isinstance(event, ResultsCleared | Compacted):
            run.is_shortened = True
        return None

    def _start_run(self, brief: Brief) -> None:
        if brief.run_id in self._runs:
            return
        run = self._runs[brief.run_id] = _Run()
        if earlier := self._runs.get(brief.continues):
            run.repeat(earlier)

    def find_use(self, run_id: str) -> CacheUse:
        """Find one run's cache use, without its children's."""
        run = self._runs.get(run_id)
        return self._sum([run] if run else [])

    @property
    def use(self) -> CacheUse:
        return self._sum(self._runs.values())

    def _sum(self, runs: Iterable[_Run]) -> CacheUse:
        total = Usage()
        misses: dict[str, int] = {}
        for run in runs:
            total += run.usage
            for (model, reason), tokens in run.misses.items():
                # A model's first report may come after its first miss.
                if model not in self._reporting and reason is MissReason.NOT_KEPT:
                    reason = MissReason.NOT_REPORTED
                misses[reason.value] = misses.get(reason.value, 0) + tokens
        sent = total.input_tokens
        return CacheUse(
            share=round(total.cache_read_tokens / sent, 4) if sent else None,
            input_tokens=sent,
            read_tokens=total.cache_read_tokens,
            written_tokens=total.cache_write_tokens,
            misses=dict(sorted(misses.items())),
        )


# Seconds that a provider keeps an unused entry; OpenAI's is a minimum. A wire whose name includes a
# host is another server with OpenAI's protocol.
_LIFETIMES = {"openai": 1800.0, "openai-responses": 1800.0}
_SHORT_LIFE = 300.0
_HOUR = 3600.0
# Tokens in the smallest cached prompt, by model name pattern.
_SMALLEST = 1_024
_SMALLEST_PROMPTS = (
    (r"claude-(opus-4[-.][56]|haiku-(4[-.][5-9]|[5-9]))(?!\d)", 4_096),
    (r"claude-(opus-4[-.]7|3[-.]5-haiku|3-haiku|haiku-3)(?!\d)", 2_048),
    (r"claude-(opus|fable|mythos)-([5-9]|\d\d)(?!\d)", 512),
)
# A request that misses less than this fraction of what it repeats counts as a hit: providers count
# in blocks.
_TOLERANCE = 0.05


def find_smallest_prompt(model: str) -> int:
    sizes = (size for pattern, size in _SMALLEST_PROMPTS if re.search(pattern, model))
    return next(sizes, _SMALLEST)


def _find_model(answer: AssistantMessage) -> str:
    return answer.answered_by or answer.model


class _Run:
    """One run's requests, and what its next request could read from the cache."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.misses: dict[tuple[str, MissReason], int] = {}
        self.is_shortened = False
        self.forbids_tools = False
        self._sent = 0
        self._model = ""
        self._ended_at = 0.0
        self._lifetime = _SHORT_LIFE

    def repeat(self, earlier: _Run) -> None:
        """Begin where an earlier run, whose conversation this one continues, ended."""
        self.is_shortened = earlier.is_shortened
        self._sent = earlier._sent
        self._model = earlier._model
        self._ended_at = earlier._ended_at
        self._lifetime = earlier._lifetime

    def add_answer(self, event: TurnFinished) -> Miss | None:
        usage = event.message.usage
        if not usage.input_tokens:
            return None
        model = _find_model(event.message)
        missed = min(self._sent, usage.input_tokens) - usage.cache_read_tokens
        miss = None
        if missed > _TOLERANCE * self._sent:
            miss = Miss(missed, self._find_reason(event, model))
            key = (model, miss.reason)
            self.misses[key] = self.misses.get(key, 0) + missed
        self.usage += usage
        self.is_shortened = False
        self._sent = usage.input_tokens
        self._model = model
        self._ended_at = event.at
        if usage.cache_hour_tokens:
            self._lifetime = _HOUR
        elif self._lifetime != _HOUR:
            self._lifetime = _LIFETIMES.get(event.message.wire, _SHORT_LIFE)
        return miss

    def _find_reason(self, event: TurnFinished, model: str) -> MissReason:
        if model != self._model:
            return MissReason.OTHER_MODEL
        if self._sent < find_smallest_prompt(model):
            return MissReason.TOO_SHORT
        if event.at - event.seconds - self._ended_at > self._lifetime:
            return MissReason.EXPIRED
        if self.is_shortened:
            return MissReason.SHORTENED
        if self.forbids_tools and event.message.wire.startswith("anthropic"):
            return MissReason.NO_TOOLS
        return MissReason.NOT_KEPT


def describe_cache_use(use: CacheUse) -> str:
    """Describe the share and the misses in one sentence; "" if no provider reported any use."""
    if use.share is None or not (use.read_tokens or use.written_tokens):
        return ""
    text = f"{use.share:.0%} of the prompts ({use.input_tokens:,} tokens) came from the cache"
    if not use.misses:
        return f"{text}."
    reasons = [f"{tokens:,} {reason}" for reason, tokens in use.misses.items()]
    return f"{text}; missed: {', '.join(reasons)}."
