"""Facts about OpenAI's models: parameters they accept, output limits, and hosts of their API."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_REASONING_MODEL = re.compile(r"(ft:)?(o\d|gpt-([5-9]|\d\d))")
_OPENAI_HOSTS = re.compile(r"(.+\.)?api\.openai\.com|.+\.openai\.azure\.com")
_OPENAI_GATEWAY = re.compile(r"gateway\.ai\.cloudflare\.com/.+/openai$")
_SMALL_OUTPUT = ("gpt-3.5", "gpt-4-")


def is_reasoning_model(model: str) -> bool:
    """Return True for a model that refuses `max_tokens`, `temperature` and `top_p`.

    The name decides, not the host: gateways pass the parameters on.
    """
    return _REASONING_MODEL.match(model) is not None


def get_default_max_tokens(model: str) -> int:
    """Return the longest answer in tokens when the config sets none.

    It is enough to write a file, and not more than the limit of OpenAI's model.
    """
    if is_reasoning_model(model):
        return 32_000
    return 4_096 if model.startswith(_SMALL_OUTPUT) or model == "gpt-4" else 16_384


def serves_responses(base_url: str) -> bool:
    """Return True if the Responses API of OpenAI is known to be served below this URL."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if _OPENAI_HOSTS.fullmatch(host):
        return True
    return _OPENAI_GATEWAY.match(host + parts.path.rstrip("/")) is not None
