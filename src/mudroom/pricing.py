"""Prices and context sizes of models, from the package `genai-prices` (imported on first use)."""

from __future__ import annotations

from functools import cache

from ._core.messages import Usage

_FREE_PROVIDERS = {"offline", "scripted", "ollama", "lmstudio", "vllm", "llamacpp"}
_PROVIDER_IDS = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "xai": "x-ai",
    "together": "together",
    "fireworks": "fireworks",
    "moonshotai": "moonshotai",
}
"""Provider name in mudroom -> provider id in genai-prices, where they may differ."""


def calculate_cost(model: str, usage: Usage, *, uses_table: bool = True) -> float | None:
    """Return the price of tokens and web searches in US dollars, None if one of them is unknown.

    The price that the provider stated counts first.

    Arguments:
        model: a model string, "provider:model"; of several with commas, the first counts.
        uses_table: also look in the table of prices. Without it, only stated prices and models
            that are always free are known.
    """
    if usage.usd is not None:
        return usage.usd
    provider, _, name = model.partition(",")[0].partition(":")
    if provider in _FREE_PROVIDERS:
        return 0.0
    if not uses_table:
        return None
    import genai_prices

    tokens = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
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
    # The table has entries without prices, whose total is 0; only some of these models are free.
    return float(price.total_price) if is_listed or name.endswith(":free") else None


@cache
def get_context_window(model: str) -> int | None:
    """Return the tokens that the context of a model can hold, None if unknown.

    Arguments:
        model: a model string, "provider:model"; of several with commas, the first counts.
    """
    provider, _, name = model.partition(",")[0].partition(":")
    if provider in _FREE_PROVIDERS or not name:
        return None
    from genai_prices.data_snapshot import get_snapshot

    provider_id = _PROVIDER_IDS.get(provider, provider)
    try:
        _, info = get_snapshot().find_provider_model(name, None, provider_id, None)
    except LookupError:
        return None
    return info.context_window
