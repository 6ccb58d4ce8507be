"""Hooks that are addresses: the input is sent by POST, and the answer is the output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...._platform.time_limits import time_limit
from .outcome import HookOutcome, read_ending
from .spec import HookSpec

if TYPE_CHECKING:
    from ...._platform.http1.pool import ConnectionPool, Response

# Bytes of an answer that are read.
_MAX_ANSWER = 8 << 20
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


async def post_input(
    spec: HookSpec, event: str, data: bytes, seconds: float, environ: Mapping[str, str]
) -> tuple[HookOutcome, str]:
    """Send the input of a hook; return its outcome and a short text about the answer."""
    from ...._platform.http1.parser import HttpError
    from ...._platform.http1.pool import ConnectionPool

    pool = ConnectionPool(read_timeout=seconds)
    try:
        async with time_limit(seconds):
            status, body = await _post(pool, spec, data, environ)
    except TimeoutError:
        text = f"no answer within {seconds:g} s"
        return HookOutcome(failure=f"there was {text}"), text
    except HttpError as error:
        return HookOutcome(failure=f"the request failed: {error}"), "no answer"
    finally:
        await pool.close()
    if not 200 <= status < 300:
        return HookOutcome(failure=f"the answer has status {status}"), f"status {status}"
    return read_ending(event, 0, body.decode("utf-8", "replace"), ""), f"status {status}"


async def _post(
    pool: ConnectionPool, spec: HookSpec, data: bytes, environ: Mapping[str, str]
) -> tuple[int, bytes]:
    headers = {name: fill_variables(spec, value, environ) for name, value in spec.headers.items()}
    headers = {"Content-Type": "application/json", "User-Agent": "mudroom", **headers}
    response: Response = await pool.post(spec.url, headers, lambda: data)
    body = bytearray()
    try:
        while (chunk := await response.read()) and len(body) < _MAX_ANSWER:
            body += chunk
    finally:
        response.close(is_answered=False)
    return response.status, bytes(body)


def fill_variables(spec: HookSpec, text: str, environ: Mapping[str, str]) -> str:
    """Fill in the variables a hook may use in a header; others become empty."""

    def fill(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return environ.get(name, "") if name in spec.allowed_variables else ""

    return _VARIABLE.sub(fill, text)
