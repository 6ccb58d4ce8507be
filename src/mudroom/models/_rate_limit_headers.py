"""Headers of responses that say how much of a provider's rate limits is left."""

from __future__ import annotations

from collections.abc import Mapping

_REQUESTS = ("anthropic-ratelimit-requests-remaining", "x-ratelimit-remaining-requests")
_TOKENS = (
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-input-tokens-remaining",
    "x-ratelimit-remaining-tokens",
)
_BYTES_PER_TOKEN = 3
"""Bytes of a request body that count as one token: rather too few than too many."""
_MAX_DIGITS = 12


def read_room(headers: Mapping[str, str], request_size: int) -> int | None:
    """Return how many more requests the provider accepts at once, None if it does not say.

    Arguments:
        headers: of a response, by lower-case name.
        request_size: bytes of the request's body; the next requests are taken to be as long.
    """
    requests = [number for name in _REQUESTS if (number := _parse(headers.get(name))) is not None]
    if not requests:
        return None
    tokens = [number for name in _TOKENS if (number := _parse(headers.get(name))) is not None]
    tokens_per_request = request_size // _BYTES_PER_TOKEN + 1
    return min([*requests, *(number // tokens_per_request for number in tokens)])


def _parse(value: str | None) -> int | None:
    if value and value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS:
        return int(value)
    return None
