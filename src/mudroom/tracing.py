"""Traces of sessions for OpenTelemetry: `Integrations(tracing=...)`.

They need the packages of the extra `tracing`.

Example:
    async with Session(model="offline", integrations=Integrations(tracing=Tracing())) as session:
        await session.run("Which testing framework does this project use?")
"""

from __future__ import annotations

from ._adapters.integrations.tracing.spec import Tracing

__all__ = ["Tracing"]
