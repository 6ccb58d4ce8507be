"""Runs the server for agent SDKs: makes each plan's session from settings and flags."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from mudroom_hosts.agent_sdk.server import AgentSdkServer
from mudroom_hosts.agent_sdk.setup import (
    ChosenServers,
    PlannedSession,
    SdkOptions,
    SdkSessionPlan,
    SessionParts,
)
from mudroom_hosts.line_streams import LineInput

from ..._adapters import agent_files
from ..._adapters.agent_files import load_output_styles
from ..._adapters.agent_files.locations import SOURCES, find_places
from ..._adapters.integrations.hook_programs.events import RULES
from ..._adapters.models.providers import list_usable_models
from ..._core.agents import Agent, Mode
from ..._core.notices import Notice
from ..._core.tool_names import parse_tool_patterns
from ..._platform.event_loop import run_event_loop
from ..._session.agent_catalog import KNOWN_TOOLS
from ...errors import UsageError
from ...permissions.rules import RULE_VERDICTS, Rule, Verdict, parse_rule
from ..output.progress import make_notice_printer
from .load_permissions import load_permissions
from .open_session import create_session
from .parse_json_flags import load_json_schema, parse_inline_agents
from .programs.load_programs import load_programs
from .prompt_files import list_file_prompts
from .serve_lines import serve_lines
from .session_start import SessionStart, StartOptions
from .session_store import delete_expired_sessions

if TYPE_CHECKING:
    from ..._adapters.integrations.config_files import Finding
    from ..._adapters.integrations.mcp_servers.spec import ServerSpec
    from ..._session.session import Session

_TRUE = ("1", "true", "yes", "on")


def serve_agent_sdk(
    options: StartOptions,
    values: Mapping[str, Sequence[str]],
    switches: Sequence[str],
    notices: Sequence[str],
) -> int:
    """Serve the program that started mudroom through an agent SDK."""
    show = make_notice_printer(quiet=options.quiet, once=True)
    for notice in notices:
        show(notice)
    return run_event_loop(_serve(options, values, switches, show))


async def _serve(
    options: StartOptions,
    flags: Mapping[str, Sequence[str]],
    switches: Sequence[str],
    show: Callable[[str], None],
) -> int:
    parse_notices: list[str] = []
    values = parse_sdk_values(flags, options.cwd, parse_notices)
    if "--resume-session-at" in flags and not options.start.resume:
        parse_notices.append("not used by mudroom: --resume-session-at without --resume")
    for notice in parse_notices:
        show(notice)
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
        show(notice)
    return await serve_lines(
        lambda write: AgentSdkServer(planner.prepare, server_options, write, show),
        lambda server: server.serve(LineInput(sys.stdin.fileno()).read(), sys.stdout.fileno()),
        show,
        remedy="the session can be continued",
    )


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
    """Makes a host's sessions from settings and the command line's flags.

    `is_strict`: ignore MCP servers from files.
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
        """Make a plan's session. Raises UsageError."""
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
        session.notices += (Notice("unused", text) for text in notices)
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
        """List the MCP servers from flags, then those from files."""
        entries = self._values.other_servers
        from_files = self._programs.servers if self._programs and not self._is_strict else ()
        if not entries:
            return list(from_files)
        servers, findings = _parse(entries, _IN_FLAG, self._options.cwd, os.environ)
        notices += [_describe(finding, _IN_FLAG) for finding in findings]
        # A server from flags replaces one from files with the same name, except an agent's own.
        others = (each for each in from_files if each.agent or each.name not in servers)
        return [*servers.values(), *others]

    def _make_start(self, plan: SdkSessionPlan) -> SessionStart:
        start = self._options.start
        if plan.resume:
            return SessionStart(resume=plan.resume, folder=start.folder)
        return replace(start, id=plan.id or start.id)

    def _make_options(
        self, plan: SdkSessionPlan, chosen: Sequence[ServerSpec], notices: list[str]
    ) -> dict[str, Any]:
        """Make the session options that the host or the SDK's flags change."""
        setup = plan.setup
        settings = self._options.settings
        options: dict[str, Any] = {"prices": True}
        if plan.model:
            options["model"] = plan.model
        options["agent_files"] = self._values.sources
        if self._values.sources != SOURCES:  # an omitted settings file may name one
            options["output_style"] = settings.output_style
        agents: list[Agent] = []
        servers = [*chosen]
        if settings.agents:  # its notices and servers come from the settings
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


_IN_FLAG = "--mcp-config"
_IN_INITIALIZE = "initialize of the SDK"
_IN_REQUEST = "mcp_set_servers"


def choose_servers(
    plan: SdkSessionPlan,
    configured: Iterable[ServerSpec],
    *,
    folder: str,
    environ: Mapping[str, str],
) -> ChosenServers:
    """Choose the servers for a plan's session, without starting any.

    The host's server takes precedence over one from a file or flag with the same name.
    """
    notices: list[str] = []
    errors: dict[str, str] = {}
    servers: dict[str, ServerSpec] = {}
    for name, entry in plan.setup.process_servers.items():
        if name not in plan.replaced_servers:
            parsed, findings = _parse({name: entry}, _IN_INITIALIZE, folder, environ)
            servers |= parsed
            notices += [_describe(finding, _IN_INITIALIZE) for finding in findings]
    for name, entry in plan.servers.items():
        parsed, findings = _parse({name: entry}, _IN_REQUEST, folder, environ)
        servers |= parsed
        if not parsed:
            reasons = [_describe(finding, "") for finding in findings]
            errors[name] = " ".join(reasons) or "it is turned off"
    taken = {*servers, *plan.replaced_servers}
    others = [spec for spec in configured if spec.agent or spec.name not in taken]
    known = [*servers.values(), *others]
    return ChosenServers(
        used=[each for each in known if each.agent or each.name not in plan.disabled_servers],
        scopes={spec.name: spec.scope for spec in known if not spec.agent},
        errors=errors,
        notices=notices,
    )


def _parse(
    entries: Mapping[str, Any], origin: str, folder: str, environ: Mapping[str, str]
) -> tuple[dict[str, ServerSpec], Sequence[Finding]]:
    from ..._adapters.integrations.mcp_servers.load import parse_servers  # slow to import

    loaded = parse_servers(entries, origin=origin, folder=folder, environ=environ)
    return {server.name: server for server in loaded.servers}, loaded.findings


def _describe(finding: Finding, origin: str) -> str:
    place = f" ({origin})" if origin else ""
    return f"{finding.text}{place}. {finding.remedy}".strip()


_SETTINGS_FLAG = "--settings"
_USED_SETTINGS = ("permissions",)


class SdkValues(Struct, frozen=True, kw_only=True):
    """Values of the agent SDKs' flags.

    `system_prompt` replaces the built-in one unless ""; `tools` are patterns for the tools prompts
    may use, None for all. `host_servers` run in the host; `other_servers` maps names to
    configurations.
    """

    system_prompt: str = ""
    appended_prompt: str = ""
    tools: tuple[str, ...] | None = None
    rules: tuple[Rule, ...] = ()
    mode: str = ""
    host_servers: tuple[str, ...] = ()
    other_servers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sources: tuple[str, ...] = SOURCES

    def make_root_agent(self, system_prompt: str, appended_prompt: str) -> Agent | None:
        """Make the agent that runs the prompts, None if neither flags nor host change it.

        The arguments come from the host, and take precedence over the flags.
        """
        prompt = system_prompt or self.system_prompt
        appended = appended_prompt or self.appended_prompt
        if not (prompt or appended) and self.tools is None:
            return None
        agent = agent_files.load_builtin_agent("main")
        parts = [part for part in (prompt or agent.instructions, appended) if part]
        tools = agent.tools if self.tools is None else self.tools
        return replace(agent, instructions="\n\n".join(parts), tools=tools)


def parse_sdk_values(flags: Mapping[str, Sequence[str]], cwd: str, notices: list[str]) -> SdkValues:
    """Parse the flags' values, given by flag in their order on the command line.

    A notice is added for each unused part. Raises UsageError for a file that cannot be
    read, and for values that are not JSON.
    """
    # Like the CLI it replaces, use the last value of a repeated flag.
    last = {name: values[-1] for name, values in flags.items()}
    prompt = last.get("--system-prompt", "")
    if file := last.get("--system-prompt-file"):
        prompt = _read_file(file, cwd, "--system-prompt-file")
    rules, mode = _parse_settings(flags.get(_SETTINGS_FLAG, ()), cwd, notices)
    servers: dict[str, Any] = {}
    for text in flags.get(_IN_FLAG, ()):
        servers |= _read_servers(text, cwd)
    in_host = [name for name, entry in servers.items() if _get_type(entry) == "sdk"]
    return SdkValues(
        system_prompt=prompt,
        appended_prompt=last.get("--append-system-prompt", ""),
        tools=_parse_tools(last.get("--tools"), notices),
        rules=tuple(rules),
        mode=mode,
        host_servers=tuple(in_host),
        other_servers={name: servers[name] for name in servers if name not in in_host},
        sources=_parse_sources(last.get("--setting-sources"), notices),
    )


def _parse_sources(text: str | None, notices: list[str]) -> tuple[str, ...]:
    if text is None:
        return SOURCES
    names = [name.strip() for name in text.split(",") if name.strip()]
    notices += [
        f"mudroom has no {name} of --setting-sources" for name in names if name not in SOURCES
    ]
    if "local" in names and "project" not in names:
        notices.append("mudroom reads the files of local with those of project only")
    return tuple(name for name in SOURCES if name in names)


def _parse_tools(text: str | None, notices: list[str]) -> tuple[str, ...] | None:
    if text is None or text == "default":
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    known: list[str] = []
    for pattern in parse_tool_patterns(names):
        if any(map(pattern.matches_tool, KNOWN_TOOLS)):
            known.append(pattern.written_name)
        else:
            notices.append(f"mudroom has no tool {pattern.written_name} (--tools)")
    # `--tools` chooses among built-in tools only; those of MCP servers always stay.
    return (*known, "mcp__*")


def _parse_settings(values: Sequence[str], cwd: str, notices: list[str]) -> tuple[list[Rule], str]:
    rules: list[Rule] = []
    mode = ""
    for value in values:
        settings = _load_json(value, cwd, _SETTINGS_FLAG)
        notices += [
            f"not used by mudroom: {name} of {_SETTINGS_FLAG}"
            for name in settings
            if name not in _USED_SETTINGS
        ]
        lists = settings.get("permissions")
        if not isinstance(lists, dict):
            continue
        lists = cast("dict[str, Any]", lists)
        for verdict in RULE_VERDICTS:
            rules += _parse_rules(lists.get(verdict.value), verdict, cwd)
        default = str(lists.get("defaultMode", ""))
        mode = default if default in list(Mode) else mode
    return rules, mode


def _parse_rules(texts: object, verdict: Verdict, cwd: str) -> list[Rule]:
    listed = cast("list[Any]", texts) if isinstance(texts, list) else []
    return [parse_rule(str(text), verdict, origin=_SETTINGS_FLAG, base=cwd) for text in listed]


def _read_servers(text: str, cwd: str) -> dict[str, Any]:
    servers = _load_json(text, cwd, _IN_FLAG).get("mcpServers")
    return cast("dict[str, Any]", servers) if isinstance(servers, dict) else {}


def _get_type(entry: object) -> object:
    return cast("dict[str, Any]", entry).get("type") if isinstance(entry, dict) else None


def _load_json(text: str, cwd: str, flag: str) -> dict[str, Any]:
    """Parse a JSON object, given as text or as a file's name."""
    if not text.lstrip().startswith("{"):
        text = _read_file(text, cwd, flag)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}", where=flag) from None
    if not isinstance(value, dict):
        raise UsageError("expected a JSON object", where=flag)
    return cast("dict[str, Any]", value)


def _read_file(name: str, cwd: str, flag: str) -> str:
    try:
        return Path(cwd, name).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot be read: {reason}", where=f"{flag} {name}") from None
