"""HTTP headers of a server: those of its configuration, a token, and the output of a program."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from ...errors import UsageError
from .spec import ServerSpec

_HELPER_SECONDS = 10.0


async def collect_headers(
    spec: ServerSpec, folder: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the headers of the requests to a server. Raises UsageError."""
    headers = dict(spec.headers)
    if variable := spec.bearer_token_variable:
        token = environ.get(variable)
        if not token:
            raise UsageError(
                f"the variable {variable} is not set",
                where=spec.origin,
                remedy="Set it to the token of the server.",
            )
        headers["Authorization"] = f"Bearer {token}"
    if spec.headers_helper:
        headers |= await _run_helper(spec, folder, environ)
    return headers


async def _run_helper(spec: ServerSpec, folder: str, environ: Mapping[str, str]) -> dict[str, str]:
    process = await asyncio.create_subprocess_shell(
        spec.headers_helper,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=folder,
        env=dict(environ),
    )
    try:
        async with asyncio.timeout(_HELPER_SECONDS):
            output, _ = await process.communicate()
        return msgspec.json.decode(output, type=dict[str, str])
    except (TimeoutError, msgspec.DecodeError) as error:
        raise UsageError(
            f"headersHelper printed no JSON object of texts within {_HELPER_SECONDS:g} s",
            where=spec.origin,
            remedy=f"Run it alone to see why: {spec.headers_helper}",
        ) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
