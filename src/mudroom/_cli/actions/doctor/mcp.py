"""Checks of MCP: starts each server that a session would use once, and looks for the package."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version

from ...._adapters.integrations.mcp_servers.connection import INSTALL_COMMAND
from ...._adapters.integrations.mcp_servers.spec import ServerSpec
from ...._core.listings import count_noun
from ...._core.ports import ServerStatus
from ...._projections.safe_text import escape_line
from ...._session.config import Settings
from .check import Check

_SERVE = "mcp serve"


def check_servers(specs: Sequence[ServerSpec], settings: Settings, cwd: str) -> Iterable[Check]:
    """Start the servers, all at the same time, and stop them again; return a check of each.

    Arguments:
        specs: trusted servers only, because they are started.
    """
    return asyncio.run(_check_servers(specs, settings, cwd)) if specs else ()


async def _check_servers(
    specs: Sequence[ServerSpec], settings: Settings, cwd: str
) -> Iterable[Check]:
    return await asyncio.gather(*(_check_server(spec, settings, cwd) for spec in specs))


async def _check_server(spec: ServerSpec, settings: Settings, cwd: str) -> Check:
    from ..programs.use_servers import make_servers

    servers = make_servers([spec], settings, cwd)
    started = time.perf_counter()
    try:
        await servers.refresh()
        seconds = time.perf_counter() - started
        (status,) = servers.list_states()
    finally:
        await servers.close()
    return _make_check(spec, status, seconds)


def _make_check(spec: ServerSpec, status: ServerStatus, seconds: float) -> Check:
    owner = f" of agent {spec.agent}" if spec.agent else ""
    name = f"MCP server {spec.name}{owner}"
    if status.state != "ready":
        remedy = f"mudroom mcp get {spec.name} shows its settings; mudroom mcp tools {spec.name} "
        reason = escape_line(status.reason) or "it ended at once"
        return Check(name, "fail", reason, f"{remedy}starts it again.")
    tools = f"{count_noun(status.tools or 0, 'tool')}, {status.definition_bytes:,} bytes"
    return Check(name, "ok", f"ready after {seconds:.1f} s; {tools}; protocol {status.protocol}")


def check_mcp_package() -> Check:
    """Check for the package that the MCP client and `mudroom mcp serve` need."""
    try:
        return Check(_SERVE, "ok", f"hosts can start it; package mcp {version('mcp')}")
    except PackageNotFoundError:
        missing = "the package mcp is not installed: no MCP server or host can be used"
        return Check(_SERVE, "warn", missing, f"Run: {INSTALL_COMMAND}")
