"""Host: the parts that serve one program with an agent SDK, joined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...agent_files import load_output_styles
from ...errors import UsageError
from ...permissions.rules import Rule
from .approver import HostApprover
from .channel import ControlChannel
from .host_hooks import make_host_hooks
from .host_tools import HostToolSource
from .hosted_session import HostedSession
from .output import PROTOCOL_LEVEL, HostOutput
from .prompt_loop import PromptLoop
from .requests import RequestTable, list_models
from .server_requests import ServerRequests
from .setup import HostSetup, PrepareSession, ServerOptions, SessionPlan


class Host:
    """The session of a host, its prompts, and the answers to its requests.

    Arguments:
        notify: takes a line for stderr.
    """

    def __init__(
        self,
        channel: ControlChannel,
        prepare: PrepareSession,
        options: ServerOptions,
        setup: HostSetup,
        notify: Callable[[str], object],
    ) -> None:
        self._setup = setup
        self._user_home = options.user_home
        self._notify = notify
        output = HostOutput(channel.send, options, shows_child_text=setup.shows_child_text)
        approver = HostApprover(
            channel,
            home=options.home,
            change_mode=self._change_mode,
            add_rules=self._add_rules,
            interrupt=self._interrupt,
            show_waiting=lambda count: output.set_state("requires_action" if count else "running"),
            notify=notify,
        )
        sources = tuple(
            HostToolSource(channel, name, setup.manifests.get(name)) for name in setup.servers
        )
        hooks = make_host_hooks(setup.hooks, channel, output.send_hook, notify)
        plan = SessionPlan(setup=setup, sources=sources)
        self.hosted = HostedSession(prepare, options, approver, hooks, output, plan, notify)
        self.prompts = PromptLoop(
            self.hosted, output, keeps_background=setup.keeps_background, notify=notify
        )
        servers = ServerRequests(
            self.hosted, self.prompts, lambda name: HostToolSource(channel, name)
        )
        self.requests = RequestTable(self.hosted, self.prompts, output, servers)

    def _change_mode(self, mode: str) -> None:
        """Use a mode that came with a decision; a wrong one is not used."""
        try:
            self.hosted.set_mode(mode)
        except UsageError as error:
            self._notify(str(error))

    def _add_rules(self, rules: tuple[Rule, ...]) -> None:
        self.hosted.add_rules(rules)

    def _interrupt(self) -> None:
        self.prompts.interrupt()

    def stop_all(self) -> bool:
        """Stop the prompt and all background work. Return False if nothing works."""
        self.prompts.interrupt(cancels_waiting=True)
        return self.hosted.stop_turn(keeps_background=False)

    def _list_styles(self) -> list[str]:
        """Return the names of the output styles of files."""
        session = self.hosted.session
        loaded = load_output_styles(
            session.cwd,
            user_home=self._user_home,
            plugins=session.plugins,
            trusts_folder=session.trusted,
        )
        return list(loaded.by_name)

    def describe(self) -> dict[str, Any]:
        """Return the answer to `initialize`."""
        session = self.hosted.session
        agents = [
            {"name": agent.name, "description": agent.description, "model": agent.model}
            for agent in session.agents
        ]
        commands = [
            {"name": each.name, "description": each.description, "argumentHint": each.hint}
            for each in self.hosted.load_prompts().values()
        ]
        parked = {
            "sdk_mcp_manifests_parked": {
                source.name: "parked" if source.has_manifest else "malformed"
                for source in self.hosted.sources
                if source.name in self._setup.manifests
            }
        }
        return {
            "commands": commands,
            "agents": agents,
            "output_style": session.output_style,
            "available_output_styles": ["default", *self._list_styles()],
            "models": list_models(),
            "account": {"apiKeySource": "none"},
            "hook_on_failure_supported": True,
            **({"hooks_applied": True} if self._setup.hooks else {}),
            **({"mcp_servers_applied": True} if self._setup.process_servers else {}),
            **(parked if self._setup.manifests else {}),
            "claude_code_version": PROTOCOL_LEVEL,
            "session_id": session.id,
        }
