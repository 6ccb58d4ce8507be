"""Paths about the server: agents, models, health, metrics, its description."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec
from aiohttp import web

from mudroom import Agent, __version__
from mudroom.errors import MudroomError
from mudroom.ports import time_limit

from .monitoring import Metrics
from .request_bodies import DEFAULT_AGENT
from .request_errors import RequestError
from .response_bodies import AgentPage, AgentView, Health, ModelPage, ModelView
from .route import Call
from .served_session import ServerParts
from .session_registry import SessionRegistry
from .session_routes import make_choice_error, respond
from .state.tokens import Token

_FRESH_SECONDS = 2.0  # seconds that a list of agents is used before rereading the files

_READY_SECONDS = 1.0  # seconds that an answer to `/ready`, which is public, is reused
_CHECK_SECONDS = 2.0  # seconds for the store and the server's state to answer
_NO_SESSION = str(UUID(int=0))


class InformationRoutes:
    """What clients may learn about the server."""

    def __init__(
        self,
        parts: ServerParts,
        registry: SessionRegistry,
        metrics: Metrics,
        is_draining: Callable[[], bool],
    ) -> None:
        self.description: dict[str, Any] = {}  # the OpenAPI description
        self._parts = parts
        self._registry = registry
        self._metrics = metrics
        self._is_draining = is_draining
        self._checking = asyncio.Lock()
        self._checked_at = float("-inf")
        self._is_ready = False
        self._agents: dict[str, tuple[float, Sequence[Agent]]] = {}

    async def find_agents(self, token: Token, workspace: str) -> list[str]:
        """Find the names of agents that a token may use, the default one first."""
        known = [DEFAULT_AGENT, *(agent.name for agent in await self._list_agents(workspace))]
        return [name for name in known if self._may_use(token.agents, name)]

    async def list_agents(self, call: Call) -> web.Response:
        """List the agents, workspaces and modes that the token can choose."""
        token = call.token
        options = self._parts.options
        names = [each for each in options.workspaces if self._may_use(token.workspaces, each)]
        workspace = call.get("workspace") or (names[0] if names else "")
        if workspace not in names:
            raise make_choice_error("workspace", workspace, names)
        agents = [
            AgentView(name=agent.name, description=agent.description)
            for agent in await self._list_agents(workspace)
            if self._may_use(token.agents, agent.name)
        ]
        page = AgentPage(data=tuple(agents), workspaces=tuple(names), modes=token.modes)
        return respond(page)

    async def list_models(self, call: Call) -> web.Response:
        models = [ModelView(id=name) for name in await self._list_models(call.token)]
        return respond(ModelPage(data=tuple(models)))

    async def read_model(self, call: Call) -> web.Response:
        name = call.request.match_info["model"]
        if name not in await self._list_models(call.token):
            raise RequestError(404, "model_not_found", f"there is no agent {name!r}", param="model")
        return respond(ModelView(id=name))

    async def send_health(self, _: Call) -> web.Response:
        """Send the server's state; while it is stopping, with status 503."""
        is_draining = self._is_draining()
        status = "draining" if is_draining else "ok"
        return respond(Health(status=status, version=__version__), 503 if is_draining else 200)

    async def send_readiness(self, _: Call) -> web.Response:
        """Send whether the store and the server's state can be used; with status 503 if not."""
        if self._is_draining():
            return respond(Health(status="draining", version=__version__), 503)
        async with self._checking:  # concurrent requests share one check
            if time.monotonic() - self._checked_at >= _READY_SECONDS:
                self._is_ready = await self._check_store()
                self._checked_at = time.monotonic()
        status = "ready" if self._is_ready else "unavailable"
        return respond(Health(status=status, version=__version__), 200 if self._is_ready else 503)

    async def _check_store(self) -> bool:
        try:
            async with time_limit(_CHECK_SECONDS):
                await self._parts.inputs.count_open()
                await self._parts.store.find_writer(_NO_SESSION)
        except (MudroomError, TimeoutError):
            return False
        return True

    async def send_metrics(self, _: Call) -> web.Response:
        """Send the metrics in Prometheus's text format."""
        slots = self._parts.slots
        gauges = {
            "mudroom_prompts_open": await self._parts.inputs.count_open(),
            "mudroom_prompts_working": slots.working,
            "mudroom_prompts_waiting": slots.waiting,
            "mudroom_sessions_open": self._registry.count_open(),
            "mudroom_streams_open": self._registry.count_streams(),
        }
        return web.Response(text=self._metrics.render(gauges))

    async def send_description(self, _: Call) -> web.Response:
        body = msgspec.json.encode(self.description)
        return web.Response(body=body, content_type="application/json")

    async def _list_models(self, token: Token) -> list[str]:
        options = self._parts.options
        names = [each for each in options.workspaces if self._may_use(token.workspaces, each)]
        return await self.find_agents(token, names[0]) if names else []

    async def _list_agents(self, workspace: str) -> Sequence[Agent]:
        now = time.monotonic()
        read_at, agents = self._agents.get(workspace, (float("-inf"), ()))
        if now - read_at < _FRESH_SECONDS:
            return agents
        folder = self._parts.options.workspaces[workspace]
        agents = await asyncio.to_thread(self._parts.command_line.list_agents, folder)
        self._agents[workspace] = (now, agents)
        return agents

    def _may_use(self, allowed: Sequence[str], name: str) -> bool:
        return not allowed or name in allowed
