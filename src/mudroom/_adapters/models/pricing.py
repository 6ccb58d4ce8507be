"""Prices and context windows of models, from the package `genai-prices` (imported on first use).

`PriceFile` keeps the prices of the models in use, because that package loads slowly.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec
from msgspec import Struct, field

from ..._core.json_values import get_decoder
from ..._core.messages import Usage
from ..._platform.private_files import replace_private_file
from .providers import find_model

_FREE_PROVIDERS = {"offline", "scripted", "ollama", "lmstudio", "vllm", "llamacpp"}
# Provider name in mudroom -> provider id in genai-prices, where they differ.
_PROVIDER_IDS = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "xai": "x-ai",
}

PRICE_FILE = "prices.json"  # in the state folder
# Tables to keep in the file; each update of the package `genai-prices` adds one.
_MAX_TABLES = 8
# Tokens of the request used to compute a price. Fewer would be lost in rounding.
_SAMPLE = 1000


@cache
def _split(model: str) -> tuple[str, str]:
    """Split a model string into provider and model; a short name such as "sonnet" is resolved."""
    first = model.partition(",")[0]
    provider, _, name = first.partition(":")
    return find_model(first) or (provider, name)


def calculate_cost(model: str, usage: Usage, *, uses_table: bool = True) -> float | None:
    """Calculate the price of tokens and web searches in US dollars; None if either is unknown.

    A price stated by the provider takes precedence.

    Arguments:
        model: a model string, "provider:model"; if several are separated by commas, the first
            counts.
        uses_table: also look in the price table. Without it, only stated prices and models that are
            always free are known.

    Example:
        print(calculate_cost("anthropic:claude-sonnet-4-5", Usage(100_000, 5_000)))
        calculate_cost("offline:rules", Usage(100_000, 5_000)) == 0.0
    """
    if usage.usd is not None:
        return usage.usd
    provider, name = _split(model)
    if provider in _FREE_PROVIDERS:
        return 0.0
    if not uses_table or provider == "replay":
        return None
    import genai_prices

    tokens = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=usage.cache_hour_tokens,
        web_searches=usage.searches,
    )
    provider_id = _PROVIDER_IDS.get(provider, provider)
    try:
        price = genai_prices.calc_price(tokens, model_ref=name, provider_id=provider_id)
    except LookupError:
        return None
    if usage.searches and getattr(price.model_price, "web_searches_kcount", None) is None:
        return None
    rates = (price.model_price.input_mtok, price.model_price.output_mtok)
    is_listed = any(rate is not None for rate in rates)
    # The table has entries without prices, which total 0; only some of these models are free.
    return float(price.total_price) if is_listed or name.endswith(":free") else None


def find_price_limit(model: str) -> int:
    """Find the request size, in input tokens, at which a model's known price changes.

    Returns 0 if the price may change over time, and `sys.maxsize` if it never changes.
    """
    import genai_prices

    provider, name = _split(model)
    provider_id = _PROVIDER_IDS.get(provider, provider)
    found = genai_prices.calc_price(genai_prices.Usage(), model_ref=name, provider_id=provider_id)
    prices = found.model.prices
    for each in prices if isinstance(prices, list) else ():
        start = getattr(each.constraint, "start_date", date.max)  # others are times of day
        if each.constraint and start > datetime.now(UTC).date():
            return 0
    tiers = [getattr(price, "tiers", ()) for price in vars(found.model_price).values()]
    return min((tier.start for group in tiers for tier in group), default=sys.maxsize)


@cache
def get_context_window(model: str) -> int | None:
    """Return a model's context window in tokens; of several, separated by commas, the first's."""
    provider, name = _split(model)
    if provider in _FREE_PROVIDERS or not name:
        return None
    from genai_prices.data_snapshot import get_snapshot

    provider_id = _PROVIDER_IDS.get(provider, provider)
    try:
        _, info = get_snapshot().find_provider_model(name, None, provider_id, None)
    except LookupError:
        return None
    return info.context_window


class ModelPrice(Struct, frozen=True, kw_only=True):
    """Prices of a token and of a web search, in US dollars."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    cache_hour: float  # of writing a token to the cache for an hour
    search: float | None  # None if unknown
    max_input: int  # largest request, in tokens, with these prices

    def holds_for(self, usage: Usage) -> bool:
        return usage.input_tokens < self.max_input

    def calculate(self, usage: Usage) -> float | None:
        if usage.searches and self.search is None:
            return None
        uncached = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        return (
            uncached * self.input
            + usage.cache_read_tokens * self.cache_read
            + (usage.cache_write_tokens - usage.cache_hour_tokens) * self.cache_write
            + usage.cache_hour_tokens * self.cache_hour
            + usage.output_tokens * self.output
            + usage.searches * (self.search or 0.0)
        )


# By model string, None for a model without a known price.
_Models = dict[str, ModelPrice | None]


class _Content(Struct):
    """The file: prices by table, because installations with different tables may share the folder.

    A table's key is its size and time; the one added last is at the end.
    """

    tables: dict[str, _Models] = field(default_factory=dict[str, _Models])
    # The context windows in tokens that each table has.
    windows: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])


class PriceFile:
    """Computes prices, loading the table only for models missing from the file."""

    def __init__(self, home: str) -> None:
        self.path = Path(home, PRICE_FILE)
        self._is_kept = bool(home)
        self._models: _Models | None = None
        self._windows: dict[str, int] = {}

    def find_window(self, model: str) -> int:
        """Find a context window in tokens; 0 if only loading the table could tell."""
        if "genai_prices.data" in sys.modules:
            return get_context_window(model) or 0
        self._load()
        return self._windows.get(model.partition(",")[0], 0)

    def calculate_cost(self, model: str, usage: Usage, *, uses_table: bool = True) -> float | None:
        """Calculate the price as `pricing.calculate_cost` does, without the table if possible."""
        usd = calculate_cost(model, usage, uses_table=False)
        if usd is not None or not uses_table or model.startswith("replay:"):
            return usd
        models = self._load()
        if not self._is_kept:
            return calculate_cost(model, usage)
        key = model.partition(",")[0]
        if key not in models:
            return self._learn(key, usage)
        price = models[key]
        if price and not price.holds_for(usage):
            return calculate_cost(model, usage)
        return price.calculate(usage) if price else None

    def _load(self) -> _Models:
        if self._models is None:
            content = self._read()
            table = _describe_table()
            self._models = content.tables.get(table, {})
            self._windows = content.windows.get(table, {})
            # A program that has loaded the table may have changed it.
            self._is_kept = self._is_kept and "genai_prices" not in sys.modules
        return self._models

    def _read(self) -> _Content:
        with suppress(OSError, msgspec.DecodeError):
            return get_decoder(_Content).decode(self.path.read_bytes())
        return _Content()

    def _learn(self, model: str, usage: Usage) -> float | None:
        """Add a model's price to the file, if writable; return a request's price."""
        price = _compute_price(model)
        # Another process may have added models meanwhile. If both write, one model is added later.
        content = self._read()
        table = _describe_table()
        self._models = content.tables.setdefault(table, {})
        self._models[model] = price
        self._windows = content.windows.setdefault(table, {})
        if window := get_context_window(model):
            self._windows[model] = window
        for old in list(content.tables)[:-_MAX_TABLES]:
            del content.tables[old]
            content.windows.pop(old, None)
        with suppress(OSError):
            replace_private_file(self.path, msgspec.json.encode(content))
        return calculate_cost(model, usage)


def _compute_price(model: str) -> ModelPrice | None:
    if calculate_cost(model, Usage(_SAMPLE)) is None:
        return None
    samples = [
        Usage(_SAMPLE),
        Usage(0, _SAMPLE),
        Usage(_SAMPLE, cache_read_tokens=_SAMPLE),
        Usage(_SAMPLE, cache_write_tokens=_SAMPLE),
        Usage(_SAMPLE, cache_write_tokens=_SAMPLE, cache_hour_tokens=_SAMPLE),
    ]
    prices = [(calculate_cost(model, each) or 0.0) / _SAMPLE for each in samples]
    return ModelPrice(
        input=prices[0],
        output=prices[1],
        cache_read=prices[2],
        cache_write=prices[3],
        cache_hour=prices[4],
        search=calculate_cost(model, Usage(searches=1)),
        max_input=find_price_limit(model),
    )


def _describe_table() -> str:
    spec = find_spec("genai_prices")
    for folder in (spec and spec.submodule_search_locations) or ():
        with suppress(OSError):
            status = os.stat(os.path.join(folder, "data.py"))
            return f"{status.st_size} {status.st_mtime_ns}"
    return ""
