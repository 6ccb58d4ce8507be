"""Costs in reports: 0.0 for free models and None for unknown prices, with and without a limit."""

from __future__ import annotations

import pytest

from mudroom import AssistantMessage, Budget, ModelOptions, Report, Session, TextBlock
from mudroom._adapters.models.scripted import Answer, ScriptedModel, call
from mudroom._core.messages import Usage
from mudroom.errors import UsageError
from mudroom.testing import Request

from .conftest import IsolatedOptions

FREE = "ollama:some-model"
PAID = "anthropic:claude-sonnet-4-5"
UNKNOWN = "unknown:model"
TOKENS = Usage(100, 10)
LIMIT = Budget(usd=1, depth=1)
NO_LIMIT = Budget(depth=1)


async def run_with_child(
    isolated: IsolatedOptions,
    name: str,
    budget: Budget,
    usage: Usage = TOKENS,
    *,
    prices: bool = False,
) -> Report:
    """Run a prompt and one child below it; each of the three answers has this usage."""

    def answer(request: Request) -> Answer:
        is_first = request.turn == 0 and "task" in request.tools
        block = call("task", prompt="CHILD") if is_first else TextBlock("done")
        return AssistantMessage((block,), usage=usage)

    model = ScriptedModel(answer, name)
    async with Session(
        model=model, prompt_budget=budget, model_options=ModelOptions(prices=prices), **isolated
    ) as session:
        return await session.run("PARENT")


@pytest.mark.parametrize("prices", [False, True])
@pytest.mark.parametrize("budget", [LIMIT, NO_LIMIT], ids=["limit", "no limit"])
async def test_a_free_model_costs_nothing(
    prices: bool, budget: Budget, isolated: IsolatedOptions
) -> None:
    report = await run_with_child(isolated, FREE, budget, prices=prices)
    assert (report.usage.total_tokens, report.usd) == (330, 0.0)


@pytest.mark.parametrize("prices", [False, True])
async def test_the_costs_of_an_unknown_price_are_unknown(
    prices: bool, isolated: IsolatedOptions
) -> None:
    report = await run_with_child(isolated, UNKNOWN, NO_LIMIT, prices=prices)
    assert report.ok and report.usd is None
    with pytest.raises(UsageError, match="price of unknown:model is not known"):
        await run_with_child(isolated, UNKNOWN, LIMIT, prices=prices)


@pytest.mark.parametrize("prices", [False, True])
@pytest.mark.parametrize("name", [PAID, UNKNOWN])
async def test_the_price_that_a_provider_states_counts_without_the_table(
    prices: bool, name: str, isolated: IsolatedOptions
) -> None:
    usage = Usage(100, 10, usd=0.25)
    report = await run_with_child(isolated, name, NO_LIMIT, usage, prices=prices)
    assert report.usd == 0.75


@pytest.mark.parametrize(
    ("budget", "prices"), [(NO_LIMIT, True), (LIMIT, True), (LIMIT, False)], ids=str
)
async def test_prices_or_a_limit_in_dollars_read_the_table_of_prices(
    budget: Budget, prices: bool, isolated: IsolatedOptions
) -> None:
    report = await run_with_child(isolated, PAID, budget, prices=prices)
    assert report.usd == pytest.approx(3 * (100 * 3 + 10 * 15) / 1_000_000, abs=1e-6)


async def test_costs_that_need_the_table_are_unknown_without_it(isolated: IsolatedOptions) -> None:
    report = await run_with_child(isolated, PAID, NO_LIMIT)
    assert report.ok and report.usd is None
