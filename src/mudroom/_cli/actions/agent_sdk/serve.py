"""Runs the server for agent SDKs: makes the session of each plan from settings and flags."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mudroom_hosts.agent_sdk.server import AgentSdkServer
from mudroom_hosts.agent_sdk.setup import (
    PlannedSession,
    SdkOptions,
    SdkSessionPlan,
    SessionParts,
)
from mudroom_hosts.line_streams import LineInput, LineOutput

from ...._adapters.agent_files import load_output_styles
from ...._adapters.agent_files.locations import SOURCES, find_places
from ...._adapters.integrations.hook_programs.events import RULES
from ...._adapters.models.providers import list_usable_models
from ...._core.agents import Agent
from ...._platform.event_loop import run_event_loop
from ....errors import SessionPaused
from ...output.notices.log import show_log
from ...output.notices.start import select_new_notices
from ...output.progress import print_notice
from ...output.signals import handle_signals
from ..load_permissions import load_permissions
from ..open_session import create_session
from ..parse_json_flags import load_json_schema, parse_inline_agents
from ..programs.load_programs import load_programs
from ..prompt_files import list_file_prompts
from ..session_start import SessionStart, StartOptions
from ..session_store import delete_expired_sessions
from .chosen_servers import choose_servers
from .flag_values import SdkValues, parse_sdk_values

if TYPE_CHECKING:
    from ...._adapters.integrations.mcp_servers.spec import ServerSpec
    from ...._session.session import Session

_TRUE = ("1", "true", "yes", "on")


def serve_agent_sdk(
    options: StartOptions,
    values: Mapping[str, Sequence[str]],
    switches: Sequence[str],
    notices: Sequence[str],
) -> int:
    """Serve the program that started mudroom through an agent SDK.

    Arguments:
        values, switches: the SDK's flags. notices: about flags that are not used.
    """
    printer = _NoticePrinter(quiet=options.quiet)
    for notice in notices:
        printer.show(notice)
    return run_event_loop(_serve(options, values, switches, printer))


class _NoticePrinter:
    """Prints each notice once on stderr."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._shown: set[str] = set()

    def show(self, text: str) -> None:
        if self._quiet or text in self._shown:
            return
        self._shown.add(text)
        print_notice(text)


async def _serve(
    options: StartOptions,
    flags: Mapping[str, Sequence[str]],
    switches: Sequence[str],
    printer: _NoticePrinter,
) -> int:
    parse_notices: list[str] = []
    values = parse_sdk_values(flags, options.cwd, parse_notices)
    if "--resume-session-at" in flags and not options.start.resume:
        parse_notices.append("not used by mudroom: --resume-session-at without --resume")
    for notice in parse_notices:
        printer.show(notice)
    planner = _SessionPlanner(
        options,
        values,
        asks_host="--permission-prompt-tool" in flags,
        is_strict="--strict-mcp-config" in switches,
    )
    server_options = SdkOptions(
        servers=values.host_servers,
        streams_parts="--include-partial-messages" in switches,
        shows_hooks="--include-hook-events" in switches,
        asks_host=planner.asks_host,
        repeats_prompts="--replay-user-messages" in switches,
        marks_states=os.environ.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "") not in _TRUE,
        hook_events=tuple(RULES),
        list_models=lambda: list_usable_models(os.environ),
        resumes=bool(options.start.resume),
        resumes_at=flags.get("--resume-session-at", [""])[-1] if options.start.resume else "",
    )
    if notice := await delete_expired_sessions(options.settings):
        printer.show(notice)

    def on_closed(reason: str) -> None:
        if reason:
            printer.show(f"{reason}. The work stops; the session can be continued.")
        server.stop()

    output = LineOutput(sys.stdout.fileno(), on_closed)
    server = AgentSdkServer(planner.prepare, server_options, output.write, printer.show)
    return await _serve_until_signal(server, output, printer)


async def _serve_until_signal(
    server: AgentSdkServer, output: LineOutput, printer: _NoticePrinter
) -> int:
    """Serve until the input ends or a signal comes."""

    def end(end_server: Callable[[], bool]) -> bool:
        # After a signal, do not wait for a host that no longer reads.
        output.hurry()
        return end_server()

    stop, pause = partial(end, server.stop), partial(end, server.pause)
    with (
        handle_signals(stop, pause, exits_after=True, must_end=True) as signals,
        show_log(printer.show),
    ):
        try:
            with suppress(SessionPaused):  # the signal asked for it
                await server.serve(LineInput(sys.stdin.fileno()).read(), sys.stdout.fileno())
        finally:
            await output.close()
    return 128 + signals[0] if signals else 0


def _list_styles(session: Session, sources: Sequence[str]) -> list[str]:
    places = find_places(sources, session.cwd, session.user_home)
    loaded = load_output_styles(
        places.folder,
        user_home=places.user_home,
        plugins=session.plugins,
        trusts_folder=session.trusted,
    )
    return list(loaded.by_name)


class _SessionPlanner:
    """Makes a host's sessions from the settings and flags of the command line.

    Arguments:
        asks_host: the host decides on calls that need confirmation.
        is_strict: ignore the MCP servers of files.
    """

    def __init__(
        self, options: StartOptions, values: SdkValues, *, asks_host: bool, is_strict: bool
    ) -> None:
        self.asks_host = asks_host
        self._is_strict = is_strict
        self._notices: list[str] = []
        self._options = options
        self._values = values
        self._programs = None
        if values.sources:
            self._programs = load_programs(options.settings, options.cwd, values.sources)
        elif options.settings.plugin_dirs:
            self._notices.append("--plugin-dir is not used without --setting-sources")
        self._servers = self._load_servers(self._notices)

    def prepare(self, plan: SdkSessionPlan, parts: SessionParts) -> PlannedSession:
        """Make the session of a plan. Raises UsageError."""
        values = self._values
        settings = self._options.settings
        mode = plan.mode or settings.permission_mode or values.mode
        settings = replace(settings, permission_mode=mode)
        loaded = load_permissions(
            settings,
            self._options.cwd,
            can_ask=self.asks_host,
            accepts_unknown=True,
            sources=values.sources,
        )
        rules = (*loaded.permissions.rules, *values.rules, *plan.rules)
        permissions = replace(loaded.permissions, rules=rules)
        servers = choose_servers(plan, self._servers, folder=self._options.cwd, environ=os.environ)
        notices = [*self._notices, *servers.notices]
        session = create_session(
            settings,
            self._options.cwd,
            loaded._replace(permissions=permissions),
            self._make_start(plan),
            programs=self._programs,
            tool_sources=plan.sources,
            hooks=parts.hooks or None,
            **self._make_options(plan, servers.used, notices),
            **({"approver": parts.approver} if self.asks_host else {}),
        )
        home = self._options.settings.home
        shown = [*session.notices, *notices]
        session.notices[:] = select_new_notices(home, self._options.cwd, shown)
        outputs = plan.setup.json_schema
        if outputs is None and settings.json_schema:
            outputs = load_json_schema(settings.json_schema)
        return PlannedSession(
            session=session,
            outputs=outputs,
            servers=servers,
            load_prompts=(
                partial(list_file_prompts, session, values.sources) if values.sources else tuple
            ),
            list_styles=partial(_list_styles, session, values.sources),
        )

    def _load_servers(self, notices: list[str]) -> list[ServerSpec]:
        """List the MCP servers of the flags, and then those of files."""
        entries = self._values.other_servers
        from_files = self._programs.servers if self._programs and not self._is_strict else ()
        if not entries:
            return list(from_files)
        from ...._adapters.integrations.mcp_servers.load import parse_servers

        origin = "--mcp-config"
        folder = self._options.cwd
        loaded = parse_servers(entries, origin=origin, folder=folder, environ=os.environ)
        notices += [f"{each.text} ({origin}). {each.remedy}".strip() for each in loaded.findings]
        # A server of the flags replaces one of files with the same name, except an agent's own.
        names = {server.name for server in loaded.servers}
        others = (each for each in from_files if each.agent or each.name not in names)
        return [*loaded.servers, *others]

    def _make_start(self, plan: SdkSessionPlan) -> SessionStart:
        start = self._options.start
        if plan.resume:
            return SessionStart(resume=plan.resume, folder=start.folder)
        return replace(start, id=plan.id or start.id)

    def _make_options(
        self, plan: SdkSessionPlan, chosen: Sequence[ServerSpec], notices: list[str]
    ) -> dict[str, Any]:
        """Return the session options that the host or the SDK's flags change."""
        setup = plan.setup
        settings = self._options.settings
        options: dict[str, Any] = {"prices": True}
        if plan.model:
            options["model"] = plan.model
        options["agent_files"] = self._values.sources
        if self._values.sources != SOURCES:  # a settings file that is left out may name one
            options["output_style"] = settings.output_style
        agents: list[Agent] = []
        servers = [*chosen]
        if settings.agents:  # its notices and servers are those of the settings
            agents += parse_inline_agents(settings.agents, self._options.cwd, []).agents
        if setup.agents:
            text = json.dumps(setup.agents)
            of_host = parse_inline_agents(text, self._options.cwd, notices)
            agents += of_host.agents
            servers += of_host.servers
        if agents:
            options["agents"] = agents
        options["mcp_servers"] = servers
        root = self._values.make_root_agent(setup.system_prompt, setup.appended_prompt)
        if root and settings.agent:
            notices.append(f"the agent {settings.agent} keeps its system prompt and its tools")
        elif root:
            options["agent"] = root
        return options
