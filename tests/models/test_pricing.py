"""Prices of models: 0.0 only for free models, None where the table has no price."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mudroom import ModelOptions, Session, Usage
from mudroom._adapters.models._http import HttpClient
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._adapters.models.pricing import calculate_cost, find_price_limit
from mudroom._core.ports import RequestConfig
from mudroom.testing.clock import FakeClock
from mudroom.testing.model_server import Fault, ModelServer

MILLION = Usage(1_000_000, 1_000_000)


@pytest.mark.parametrize(
    ("model", "cost"),
    [
        ("offline:rules", 0.0),
        ("ollama:qwen3", 0.0),
        ("openrouter:agentica-org/deepcoder-14b-preview:free", 0.0),
        ("openai:my-own", None),
        ("nobody:knows", None),
        ("cerebras:qwen-3-coder-480b", None),
    ],
)
def test_free_models_cost_nothing_and_unknown_ones_an_unknown_price(
    model: str, cost: float | None
) -> None:
    assert calculate_cost(model, MILLION) == cost


@pytest.mark.parametrize("name", ["sonnet", "anthropic:sonnet", "anthropic/claude-sonnet-5-5"])
def test_a_short_name_costs_what_its_model_costs(name: str) -> None:
    assert calculate_cost(name, MILLION) == calculate_cost("anthropic:claude-sonnet-5-5", MILLION)


def test_writing_to_the_cache_for_an_hour_costs_its_own_price() -> None:
    written = Usage(1_000_000, cache_write_tokens=1_000_000)
    short = calculate_cost("sonnet", written)
    hour = calculate_cost("sonnet", written + Usage(cache_hour_tokens=1_000_000))
    assert short is not None and hour == pytest.approx(1.6 * short)


def test_a_priced_model_costs_money() -> None:
    cost = calculate_cost("anthropic:claude-sonnet-4-5", MILLION)
    assert cost is not None and cost > 0


@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("anthropic:claude-sonnet-5-5", 0.01),
        ("openai:gpt-6.1-sol", 0.01),
        ("google:gemini-3-pro-preview", 0.014),
        ("google:gemini-flash-latest", 0.014),
        ("ollama:qwen3", 0.0),
    ],
)
def test_each_search_costs_money(model: str, price: float) -> None:
    tokens = Usage(1_000, 100)
    without = calculate_cost(model, tokens)
    cost = calculate_cost(model, tokens + Usage(searches=3))
    assert without is not None and cost == pytest.approx(without + 3 * price)


def test_a_search_without_a_known_price_makes_the_cost_unknown() -> None:
    assert calculate_cost("openai:gpt-4.1-nano", Usage(1_000, 100)) is not None
    assert calculate_cost("openai:gpt-4.1-nano", Usage(1_000, 100, searches=1)) is None


def test_the_price_that_the_provider_told_counts_first() -> None:
    assert calculate_cost("anthropic:claude-sonnet-4-5", Usage(5, 5, usd=0.25)) == 0.25
    assert calculate_cost("openrouter:some/unknown", Usage(5, 5, usd=0.25)) == 0.25


def test_a_sum_has_a_price_only_if_all_its_parts_have_one() -> None:
    told = Usage(5, 5, usd=0.25)
    assert (told + told).usd == 0.5
    assert (Usage() + told).usd == (told + Usage()).usd == 0.25
    assert (told + Usage(5, 5)).usd is None
    assert (Usage(1, 1) + Usage(1, 1)).usd is None


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"cost": 0.00008725, "is_byok": False}, 0.00008725),
        ({"cost": {"total_cost": 0.006, "currency": "USD"}}, 0.006),
        (
            {"cost": 0.5, "is_byok": True, "cost_details": {"upstream_inference_cost": 1.5}},
            2.0,
        ),
        (
            {"cost": 0.5, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.5}},
            0.5,
        ),
        ({"cost_in_usd_ticks": 1466250}, 0.000146625),
        ({"cost": 0}, None),
        ({}, None),
    ],
    ids=str,
)
async def test_the_price_of_a_gateway_is_in_the_report(
    usage: dict[str, Any], expected: float | None, tmp_path: Path
) -> None:
    chunk: dict[str, Any] = {
        "choices": [{"delta": {"content": "Hello."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11, **usage},
    }
    body = b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(chunk).encode()
    async with ModelServer(lambda _: Fault(body=body, content_type="text/event-stream")) as server:
        environ = {"OPENROUTER_API_KEY": "k", "OPENROUTER_BASE_URL": f"{server.url}/v1"}
        async with Session(
            model="openrouter:some/unknown",
            cwd=str(tmp_path),
            journal="memory",
            environ=environ,
            model_options=ModelOptions(prices=True),
        ) as session:
            report = await session.run("Hello")
    assert report.usage.usd == expected
    # A report rounds to millionths.
    assert report.usd == (None if expected is None else round(expected, 6))


def test_openrouter_is_asked_for_the_price() -> None:
    http = HttpClient(clock=FakeClock())
    model = OpenAIModel("some/m", http=http, base_url="https://openrouter.ai/api/v1")
    body = json.loads(model.start_conversation(RequestConfig(system="")).build_body())
    assert body["usage"] == {"include": True}


USES_FILE = """
import sys
from mudroom import Usage
from mudroom._adapters.models.pricing import PriceFile
prices = PriceFile(sys.argv[1])
usages = [Usage(1000, 9), Usage(90_000, 500, 60_000, 20_000), Usage(9, 9, searches=2)]
assert prices.calculate_cost("replay:a", usages[0]) is None and "genai_prices" not in sys.modules
for model in ("anthropic:claude-sonnet-4-5,openai:gpt-5", "openai:my-own", "ollama:qwen3"):
    for usage in usages:
        print(prices.calculate_cost(model, usage))
assert prices.calculate_cost("openai:gpt-5", usages[0], uses_table=False) is None
print(len(sys.argv) > 2 and prices.calculate_cost(sys.argv[2], Usage(1_000_000)))
print("genai_prices" in sys.modules)
"""


def test_prices_of_known_models_are_read_from_a_file_without_the_table(tmp_path: Path) -> None:
    def run(*arguments: str) -> list[str]:
        command = [sys.executable, "-c", USES_FILE, str(tmp_path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    learnt = run()
    known = run()
    assert learnt[-1] == "True" and known[-1] == "False"
    assert known[3:6] == learnt[3:6] == ["None"] * 3 and known[6:9] == ["0.0"] * 3
    numbers = [float(price) for price in learnt[:3]]
    assert [float(price) for price in known[:3]] == pytest.approx(numbers, rel=1e-12)
    # A request beyond the first step of a price needs the table; so does a changed table.
    *_, price, is_loaded = run("anthropic:claude-sonnet-4-5")
    assert float(price) == calculate_cost("anthropic:claude-sonnet-4-5", Usage(1_000_000))
    assert is_loaded == "True"
    file = tmp_path / "prices.json"
    (table,) = (content := json.loads(file.read_text())["tables"])
    others = {str(number): content[table] for number in range(8)}
    file.write_text(json.dumps({"tables": others}))
    assert run() == learnt and run() == known
    # The prices of another installation that shares the folder stay; the oldest go.
    kept = json.loads(file.read_text())["tables"]
    assert list(kept) == [*list(others)[1:], table] and kept["7"] == others["7"]
    file.write_text("{")
    assert run() == learnt


def test_prices_that_change_with_the_time_or_the_size_have_a_limit() -> None:
    assert find_price_limit("deepseek:deepseek-chat") == 0  # Its prices depend on the time of day.
    assert find_price_limit("anthropic:claude-sonnet-4-5") == 200_000
