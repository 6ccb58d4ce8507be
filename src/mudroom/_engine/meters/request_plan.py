"""RequestPlan and Admission: amounts of a model request, and what the limits allow it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ..._core.budgets import SHARED_LIMITS, Limit, LimitState

LONGEST_ANSWER = 32_000
"""Most tokens of an answer that a limit counts, where neither agent nor session sets another."""


class RequestPlan(Struct, frozen=True):
    """Amounts that a model request will spend.

    Arguments:
        least: amounts without the answer, estimated from below.
        most: amounts without the answer, estimated from above.
        prices: amounts of one token of the answer.
        least_answer: tokens that the answer may always have.
        most_answer: tokens that the answer may have where enough is left.
        is_first: true for the first request of a run, which may always be tried.
        is_summary: true for the summary at the end of a run.
    """

    least: Mapping[Limit, float]
    most: Mapping[Limit, float]
    prices: Mapping[Limit, float]
    least_answer: int
    most_answer: int = LONGEST_ANSWER
    is_first: bool = False
    is_summary: bool = False

    def most_with_answer(self, tokens: int) -> dict[Limit, float]:
        """Return the most that the request may spend, with an answer of so many tokens."""
        answers = {limit: price * tokens for limit, price in self.prices.items()}
        return {limit: self.most.get(limit, 0) + answers.get(limit, 0) for limit in SHARED_LIMITS}


class Admission(Struct, frozen=True):
    """Answer of the limits to a request.

    Arguments:
        number: names the request where it is under way in another process.
        max_tokens: maximum tokens of the answer; None: no limit counts them.
        cut_by: the limit that allows no longer answer.
        refusal: the limit that does not allow the request.
    """

    number: int = 0
    max_tokens: int | None = None
    cut_by: LimitState | None = None
    refusal: LimitState | None = None
