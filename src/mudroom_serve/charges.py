"""SessionCharges: charges what a session's runs spent, from its journal, to its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mudroom import Budget, Usage
from mudroom.errors import UnknownName
from mudroom.events import RunStarted, StoredEvent, TurnFailed, TurnFinished
from mudroom.ports import SessionStore
from mudroom.views import calculate_cost, stream_events

from .state.sessions import Amounts, SessionRecord, SpendingRecords


class SessionCharges:
    """One session's charges. Each event is charged once, even after a crash."""

    def __init__(
        self,
        record: SessionRecord,
        store: SessionStore,
        spending: SpendingRecords,
        on_spent: Callable[[str], object],
    ) -> None:
        self._record = record
        self._store = store
        self._spending = spending
        self._on_spent = on_spent
        self._models: dict[str, str] = {}
        self._has_models = False
        self._lock = asyncio.Lock()

    @property
    def has_limits(self) -> bool:
        """True if the owner has a daily spending limit."""
        choices = self._record.choices
        return choices.usd_per_day is not None or choices.tokens_per_day is not None

    async def update(self) -> None:
        async with self._lock:
            await self._update()
        self._on_spent(self._record.owner)

    async def _update(self) -> None:
        session = self._record.id
        after, _ = await self._spending.read_session(session)
        if after and not self._has_models:
            async for event in stream_events(self._store, session, (RunStarted,)):
                self._add_model(event)
        self._has_models = True
        position = after
        total = Amounts()
        try:
            async for event in stream_events(self._store, session, after=after):
                position += 1
                self._add_model(event)
                total += self._compute_amounts(event)
        except UnknownName:
            return  # nothing recorded yet
        if position > after:
            await self._spending.charge(session, self._record.owner, after, position, total)

    async def make_budget(self) -> Budget:
        """Make the session's limits, across all its runs, for the rest of the day."""
        choices = self._record.choices
        today = await self._spending.read_today(self._record.owner)
        _, spent = await self._spending.read_session(self._record.id)
        usd = choices.usd_per_day
        tokens = choices.tokens_per_day
        return Budget(
            usd=None if usd is None else spent.usd + max(0.0, usd - today.usd),
            total_tokens=None if tokens is None else spent.tokens + max(0, tokens - today.tokens),
        )

    def _add_model(self, event: StoredEvent) -> None:
        if isinstance(event, RunStarted):
            self._models[event.run] = event.brief.model

    def _compute_amounts(self, event: StoredEvent) -> Amounts:
        match event:
            case TurnFinished(message=message):
                return self._price(event.run, message.usage, message.answered_by)
            case TurnFailed(estimate=estimate):
                return self._price(event.run, estimate)
            case _:
                return Amounts()

    def _price(self, run: str, usage: Usage, answered_by: str = "") -> Amounts:
        usd = calculate_cost(answered_by or self._models.get(run, ""), usage)
        return Amounts(usd or 0.0, usage.total_tokens)


async def explain_used_up(
    spending: SpendingRecords, owner: str, usd: float | None, tokens: int | None
) -> str:
    """Explain which daily limit an owner has used up, "" for none."""
    if usd is None and tokens is None:
        return ""
    today = await spending.read_today(owner)
    if usd is not None and today.usd >= usd:
        return f"the budget of this day is used up: {today.usd:.2f} of {usd:g} US dollars"
    if tokens is not None and today.tokens >= tokens:
        return f"the budget of this day is used up: {today.tokens:,} of {tokens:,} tokens"
    return ""
