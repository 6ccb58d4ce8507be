"""Traces of sessions for OpenTelemetry: the option `tracing` of `Session`.

They need the packages of the extra `tracing`.

Example:
    async with Session(model="offline", tracing=Tracing()) as session:
        await session.run("Which testing framework does this project use?")
"""

from __future__ import annotations

from ._adapters.integrations.tracing.spec import Tracing

__all__ = ["Tracing"]
