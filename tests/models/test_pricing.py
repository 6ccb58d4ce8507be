"""Prices of models: 0.0 only for free models, None where the table has no price."""

from __future__ import annotations

import pytest

from mudroom import Usage
from mudroom.pricing import calculate_cost

MILLION = Usage(1_000_000, 1_000_000)


@pytest.mark.parametrize(
    "model", ["offline:rules", "ollama:qwen3", "openrouter:agentica-org/deepcoder-14b-preview:free"]
)
def test_free_models_cost_nothing(model: str) -> None:
    assert calculate_cost(model, MILLION) == 0.0


@pytest.mark.parametrize("model", ["openai:my-own", "nobody:knows", "cerebras:qwen-3-coder-480b"])
def test_a_model_without_prices_in_the_table_has_an_unknown_price(model: str) -> None:
    assert calculate_cost(model, MILLION) is None


def test_a_priced_model_costs_money() -> None:
    cost = calculate_cost("anthropic:claude-sonnet-4-5", MILLION)
    assert cost is not None and cost > 0
