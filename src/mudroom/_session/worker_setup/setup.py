"""What a session sends to its worker processes for them to build its runs' services."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ..._adapters import agent_files
from ..._adapters.integrations.mcp_servers.spec import ServerSpec
from ..._adapters.models.providers import list_address_variables, list_header_variables
from ..._adapters.output_filters import is_secret_name
from ..._adapters.workers.remote.session_calls import ServersState, SessionToolSpec
from ..._core.agents import Agent
from ..._core.listings import ListingLimits
from ..._core.options import Children, Compaction, Isolation, ModelOptions
from ..._core.ports.board import BoardOffer
from ..._projections.trace_ids import TraceIds
from ...permissions.rules import Permissions


class ProcessSetup(Struct, frozen=True, kw_only=True):
    """A session's options, and what it knows about its folder and models.

    A worker process reads no agent files and asks no model servers: another machine may have
    different ones, and they may have changed. For agents, texts, `child_models`, `spill_folder` and
    `trace_ids`, see SessionServices.

    Arguments:
        can_ask: whether the session has an approver.
        environ: variables with keys and addresses; None for those of the process.
        own_variables: variables the process takes from its own environment if `environ` lacks them.
        windows, images: what local servers reported about models, by model string.
        bridged_models: names of models that the session's process calls for its workers.
        own_servers: configurations of servers that belong to single agents.
        session_tools: the caller's tools that the session's process executes.
        versions_folder: see FileVersions; "" if earlier file contents are not kept.
        clock_start: see SystemClock; None for a process that may be on another machine.
    """

    children: Children
    isolation: Isolation
    compaction: Compaction
    model_options: ModelOptions
    allow_net: bool
    sandbox: str
    permissions: Permissions
    can_ask: bool
    environ: dict[str, str] | None
    own_variables: Literal["none", "secrets", "all"] = "none"
    user_home: str
    agents: dict[str, Agent]
    skills: dict[str, agent_files.Skill] = {}
    context_texts: dict[str, str]
    environment_text: str
    child_models: dict[str, str]
    listing_limits: ListingLimits = ListingLimits()
    windows: dict[str, int]
    images: dict[str, bool]
    bridged_models: tuple[str, ...]
    servers: ServersState | None
    own_servers: list[ServerSpec]
    session_tools: list[SessionToolSpec]
    has_hooks: bool
    spill_folder: str
    trace_ids: TraceIds | None
    versions_folder: str
    board_offer: BoardOffer = ""
    clock_start: float | None = None


def leave_secrets_out(setup: ProcessSetup, environ: Mapping[str, str]) -> ProcessSetup:
    """Leave out secrets for another machine, whose environment has its own."""
    if setup.environ is None:
        names = list_address_variables()
        sent = {name: environ[name] for name in names if name in environ}
        return replace(setup, environ=sent, own_variables="all")
    sent = {name: text for name, text in setup.environ.items() if not may_be_secret(name)}
    return replace(setup, environ=sent, own_variables="secrets")


def get_environ(setup: ProcessSetup) -> Mapping[str, str]:
    if setup.environ is None:
        return os.environ
    if setup.own_variables == "all":
        return {**os.environ, **setup.environ}
    if setup.own_variables == "secrets":
        own = {name: text for name, text in os.environ.items() if may_be_secret(name)}
        return {**own, **setup.environ}
    return setup.environ


def may_be_secret(name: str) -> bool:
    """Guess from its name whether a variable may hold a secret."""
    return is_secret_name(name) or name in list_header_variables()
