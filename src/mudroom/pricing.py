"""What model calls cost and models hold, from the `genai-prices` package, loaded only when somebody asks. What is not known is None."""

from __future__ import annotations

from functools import cache

from ._core.messages import Usage
from .errors import UsageError

_FREE_PROVIDERS = {"offline", "scripted", "ollama", "lmstudio", "vllm", "llamacpp"}
_PROVIDER_IDS = {
    "xai": "x-ai",
    "together": "together",
    "fireworks": "fireworks",
    "moonshotai": "moonshotai",
}


def calculate_cost(model: str, usage: Usage) -> float | None:
    """US dollars of some tokens, None when the price of the model is not known.

    Arguments:
        model: a model string, "provider:model".
    """
    provider, _, name = model.partition(":")
    if provider in _FREE_PROVIDERS:
        return 0.0
    import genai_prices

    tokens = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        return float(
            genai_prices.calc_price(
                tokens, model_ref=name, provider_id=_PROVIDER_IDS.get(provider, provider)
            ).total_price
        )
    except LookupError:
        return None


@cache
def context_window(model: str) -> int | None:
    """Tokens that the context of a model holds, None when that is not known. `model`: a model string, "provider:model"."""
    provider, _, name = model.partition(":")
    if provider in _FREE_PROVIDERS or not name:
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        return (
            get_snapshot()
            .find_provider_model(name, None, _PROVIDER_IDS.get(provider, provider), None)[1]
            .context_window
        )
    except LookupError:
        return None


def require_price(model: str) -> None:
    """Check that a budget in money can be held for this model. Raises UsageError when its price is not known."""
    if calculate_cost(model, Usage(1, 1)) is None:
        raise UsageError(
            f"the price of {model} is not known",
            remedy="Set a limit in tokens or turns instead of money.",
        )
