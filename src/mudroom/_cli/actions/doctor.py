"""`mudroom doctor`: checks this machine's setup.

It changes nothing and prints no keys. Only models on this machine are sent a request. MCP servers
that a session here would use are started, wherever they are.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from msgspec import Struct, field

from ..._adapters.agent_files import count_by_severity
from ..._adapters.integrations.mcp_servers.server_connection import INSTALL_COMMAND
from ..._adapters.integrations.mcp_servers.spec import ServerSpec
from ..._adapters.journals.sessions import read_events
from ..._adapters.models._written_calls import WRITTEN_CALL
from ..._adapters.models.pricing import calculate_cost
from ..._adapters.tools._ripgrep import find_ripgrep
from ..._core.listings import count_noun, format_size
from ..._core.messages import AssistantMessage, ThinkingBlock, Usage, user_message
from ..._core.notices import Notice
from ..._core.ports import Model, RequestConfig, RetryNotice, ServerStatus
from ..._core.tools import Tool, ToolResult
from ..._platform.time_limits import SystemClock, time_limit
from ..._projections.safe_text import escape_line
from ..._session import config
from ..._session.config import Settings
from ..._session.context_windows import ContextWindows, LearntWindows
from ..._session.model_registry import (
    MODEL_VARIABLES,
    ModelRegistry,
    choose_default_model,
    explain_unusable,
)
from ..._version import __version__
from ...errors import JournalError, MudroomError, UsageError
from ..output.json_output import print_json
from ..output.listing import print_entry, print_rows
from .load_permissions import load_permissions
from .load_settings import describe_unknown_variables, load_settings
from .providers import ProviderRow, list_providers
from .user_store import open_store, use_store

_SERVE = "mcp serve"


def check_servers(specs: Sequence[ServerSpec], settings: Settings, cwd: str) -> Iterable[Check]:
    """Start these trusted servers, all at once, and stop them again."""
    return asyncio.run(_check_servers(specs, settings, cwd)) if specs else ()


async def _check_servers(
    specs: Sequence[ServerSpec], settings: Settings, cwd: str
) -> Iterable[Check]:
    return await asyncio.gather(*(_check_server(spec, settings, cwd) for spec in specs))


async def _check_server(spec: ServerSpec, settings: Settings, cwd: str) -> Check:
    from .programs.use_servers import make_servers

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
    try:
        return Check(_SERVE, "ok", f"hosts can start it; package mcp {version('mcp')}")
    except PackageNotFoundError:
        missing = "the package mcp is not installed: no MCP server or host can be used"
        return Check(_SERVE, "warn", missing, f"Run: {INSTALL_COMMAND}")


# Number of newest sessions whose journals are read.
CHECKED_SESSIONS = 20

STATE_LABELS = {"ok": "ok  ", "warn": "note", "fail": "FAIL"}
_MIN_FREE_BYTES = 100e6


def print_checks(*, model: str | None = None, as_json: bool) -> int:
    """Print all checks, or only one model's; return 1 if any failed, else 0."""
    checks: list[Check] = []
    all_checks = (
        asyncio.run(check_model(model, os.environ))
        if model
        else run_checks(os.environ, starts_servers=True)
    )
    for check in all_checks:
        checks.append(check)
        if not as_json:
            print_entry(f"{STATE_LABELS[check.state]}  {check.name}: {check.result}", indent=6)
            if check.remedy:
                print_rows([("    ", check.remedy)])
    if as_json:
        print_json({"version": __version__, "checks": checks})
    return int(any(check.state == "fail" for check in checks))


def run_checks(environ: Mapping[str, str], *, starts_servers: bool) -> Iterator[Check]:
    """Run all checks, one after another.

    `starts_servers`: start each MCP server that a session here would use.
    """
    yield Check("mudroom", "ok", __version__)
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Check("platform", "ok", platform.platform())
    home = config.find_home(environ)
    yield from _report("settings", _check_settings(environ), "Fix or remove that line.")
    yield _check_home(home)
    yield from _report("journals", _check_journals(home, environ))
    yield from _report("isolated workspaces", _check_workspaces(home))
    yield from _check_models(environ)
    yield from _report("agents", _check_agents())
    yield from _report("child models", _check_child_models(environ))
    yield from _check_learnt_windows(home)
    yield from _report("permissions", _check_permissions())
    yield from _report("MCP servers and hooks", _check_programs(starts_servers=starts_servers))
    yield check_mcp_package()
    yield from _check_traces()
    yield _check_sandbox(environ)
    rg = find_ripgrep(os.getcwd())
    missing = "not found: the tool grep does not work"
    yield _check_program("rg", rg, missing, "Install ripgrep.")
    missing = "not on PATH: agents cannot run git commands"
    yield _check_program("git", shutil.which("git"), missing, "Install git.")


def _report(name: str, checks: Iterator[Check], remedy: str = "") -> Iterator[Check]:
    try:
        yield from checks
    except MudroomError as error:
        yield Check(name, "fail", str(error), remedy)


def _check_settings(environ: Mapping[str, str]) -> Iterator[Check]:
    settings = config.load_settings(cwd=".", environ=environ, flags={})
    path = config.find_user_file(environ)
    origins = ", ".join(f"{name} from {origin}" for name, origin in settings.origins.items())
    unused = " ".join(describe_unknown_variables(environ))
    note = "" if path.exists() else " (no file)"
    result = f"{path}{note}: {origins or 'all settings have their defaults'}"
    yield Check("settings", "warn" if unused else "ok", result, unused)


def _check_home(home: str) -> Check:
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        # An access check would not notice a full disk, or a file system mounted read-only.
        with tempfile.TemporaryFile(dir=home) as file:
            file.write(b"x")
    except OSError as error:
        result = f"{home} cannot be written: {error.strerror}"
        return Check("home", "fail", result, "Set MUDROOM_HOME to a folder that you can write.")
    free_bytes = shutil.disk_usage(home).free
    state = "ok" if free_bytes > _MIN_FREE_BYTES else "warn"
    return Check("home", state, f"{home}, {free_bytes / 1e9:.1f} GB free")


def _check_journals(home: str, environ: Mapping[str, str]) -> Iterator[Check]:
    use_store(config.load_store(environ))
    count, errors = asyncio.run(_read_newest_journals(home))
    if errors:
        result = f"{len(errors)} of the last {count} sessions cannot be read: {errors[0]}"
        yield Check("journals", "fail", result, "The other sessions are not affected.")
    else:
        yield Check("journals", "ok", f"last {count} sessions OK" if count else "no sessions yet")


def _check_workspaces(home: str) -> Iterator[Check]:
    from ..._adapters.workspaces.isolated.git import INSTALL_GIT, explain_unusable_git
    from ..._adapters.workspaces.isolated.kept_work import list_kept, measure_kept

    if reason := explain_unusable_git():
        yield Check("isolated workspaces", "warn", f"they need git: {reason}", f"{INSTALL_GIT}.")
        return
    kept_size = measure_kept(home)
    kept = list_kept(home)
    if not kept_size.sessions:
        return
    not_merged = sum(work.state == "not merged" for work in kept)
    result = (
        f"{format_size(kept_size.size)} of {count_noun(kept_size.sessions, 'session')} in "
        f"{kept_size.folder}; work of {count_noun(len(kept), 'run')}, {not_merged:,} not merged"
    )
    yield Check("isolated workspaces", "ok", result)


async def _read_newest_journals(home: str) -> tuple[int, list[str]]:
    store = open_store(home)
    newest = (await store.list())[:CHECKED_SESSIONS]
    errors: list[str] = []
    for info in newest:
        try:
            await read_events(store, info.id)
        except JournalError as error:
            errors.append(str(error))
    return len(newest), errors


def _check_models(environ: Mapping[str, str]) -> Iterator[Check]:
    # Several providers may share an address, one for each protocol of the server.
    by_address: dict[tuple[str, str], ProviderRow] = {}
    for row in list_providers(environ):
        if row.variable:
            by_address.setdefault((row.variable, row.base_url), row)
    rows = by_address.values()
    for row in rows:
        if row.reachable is False:
            yield Check(
                f"model server of {row.provider}",
                "warn",
                f"{row.base_url} does not answer",
                f"Start it, or unset {row.variable}.",
            )
    if rows:
        variables = ", ".join(row.variable for row in rows)
        default, _ = choose_default_model(environ)
        yield Check("models", "ok", f"{default} is the default; found {variables}")
        if default and any(default.startswith(f"{row.provider}:") for row in rows if row.reachable):
            yield asyncio.run(check_request(default, environ))
        return
    yield Check(
        "models",
        "warn",
        "no key and no local server found: only the offline demo model can answer",
        f"To use a real model, set {MODEL_VARIABLES}.",
    )


def _check_agents() -> Iterator[Check]:
    from .agents import collect_findings, load_agents

    findings = collect_findings(".")
    loaded = load_agents(".")
    problems = [finding for finding in findings if finding.severity != "note"]
    agent_count = len(loaded.agents) + len(loaded.main_agents)
    agents = count_noun(agent_count, "agent")
    counts = f"{agents} and {count_noun(len(loaded.skills), 'skill')} from files"
    if problems:
        result = f"{counts}; {count_by_severity(findings)}, the first: {problems[0]}"
        yield Check("agents", "warn", result, "mudroom agents check lists them all.")
    else:
        yield Check("agents", "ok", counts)


def _check_child_models(environ: Mapping[str, str]) -> Iterator[Check]:
    from .agents import load_agents, resolve_rules

    name = "child models"
    notices: list[Notice] = []
    models = resolve_rules(".", load_agents("."), notices)
    reasons = {model: explain_unusable(model, environ) for model in models.values() if model}
    unusable = [f"{model} cannot be used ({why})" for model, why in reasons.items() if why]
    if unusable:
        yield Check(name, "fail", "; ".join(unusable), "Change the setting child_model.")
    elif notices:
        texts = "; ".join(map(str, notices))
        yield Check(name, "warn", texts, "Change the setting child_model.")
    elif reasons:
        rows = (
            f"{'all other agents' if agent == '*' else agent}: {model or 'as their parent'}"
            for agent, model in models.items()
        )
        yield Check(name, "ok", "; ".join(rows))


def _check_learnt_windows(home: str) -> Iterator[Check]:
    windows = LearntWindows(home)
    if result := windows.describe():
        remedy = f"A setting context_window wins. Delete {windows.path} to forget these windows."
        yield Check("learnt windows", "ok", result, remedy)


def _check_permissions() -> Iterator[Check]:
    permissions, notices = load_permissions(load_settings("."), ".")
    rules = count_noun(len(permissions.rules), "rule")
    result = "; ".join([f"mode {permissions.mode}, {rules}", *notices])
    yield Check("permissions", "warn" if notices else "ok", result)


def _check_programs(*, starts_servers: bool) -> Iterator[Check]:
    """Check MCP servers, hooks, plugins and their files; no rows for missing kinds."""
    from .programs.load_programs import require_programs

    settings = load_settings(".")
    programs = require_programs(settings, ".")
    kinds = (
        ("MCP servers", "server", "mcp", programs.listed_servers),
        ("hooks", "hook", "hooks", programs.listed_hooks),
    )
    for name, noun, command, listed in kinds:
        unused = [item for item in listed if item.reason]
        if listed:
            result = f"{count_noun(len(listed), noun)} in files, {len(unused)} not used"
            if unused:
                result += f"; the first: {unused[0].reason} ({unused[0].spec.origin})"
            is_untrusted = any(item.spec in programs.untrusted for item in unused)
            state = "warn" if is_untrusted else "ok"
            yield Check(name, state, result, f"mudroom {command} lists them all." if unused else "")
    if starts_servers:
        yield from check_servers(programs.servers, settings, os.getcwd())
    if plugins := programs.listed_plugins:
        result = f"{count_noun(len(plugins), 'plugin')} turned on"
        lost = [item for item in plugins if item.plugin is None]
        if lost:
            result += f", {len(lost)} not used; the first: {lost[0].reason}"
        remedy = "mudroom plugins lists them all." if lost else ""
        yield Check("plugins", "warn" if lost else "ok", result, remedy)
    for finding in programs.findings:
        if finding.is_problem:
            result = f"{finding.where}: {finding.text}"
            yield Check("MCP servers and hooks", "warn", result, finding.remedy)


def _check_traces() -> Iterator[Check]:
    """Check trace export; no row if no variable names an address."""
    from ..._adapters.integrations.tracing import variables

    if not variables.has_address(os.environ):
        return
    if reason := variables.explain_off(os.environ):
        yield Check("traces", "warn", f"not exported: {reason}", "Unset that variable.")
    elif not variables.is_installed():
        result = "an address is set, and the packages are not installed"
        yield Check("traces", "warn", result, f"Install them: {variables.INSTALL_COMMAND}")
    else:
        yield Check("traces", "ok", f"exported to {variables.find_address(os.environ)}")


def _check_sandbox(environ: Mapping[str, str]) -> Check:
    from ..._adapters.sandboxes import detect

    detected = detect.probe(environ, os.getcwd())
    if detected.weakness:
        result = f"full, but {detected.weakness}"
        return Check("sandbox", "warn", result, "Run mudroom as a user other than root.")
    if detected.tier == "full":
        result = (
            "full: commands can use the workspace and read the system; no network"
            f" ({detected.bwrap})"
        )
        return Check("sandbox", "ok", result)
    remedy = f"{detected.full_remedy}."
    if detected.tier == "file":
        result = (
            "file: Landlock and a system call filter limit commands; the stronger sandbox full does"
            f" not work: {detected.no_full_reason}"
        )
        return Check("sandbox", "warn", result, remedy)
    result = (
        "none: you must confirm each command; without a user to ask, no command runs"
        f" (full: {detected.no_full_reason}; file: {detected.no_file_reason})"
    )
    return Check("sandbox", "warn", result, remedy)


def _check_program(name: str, path: str | None, missing: str, remedy: str) -> Check:
    return Check(name, "ok", path) if path else Check(name, "warn", missing, remedy)


class Check(Struct, frozen=True):
    """The result of one check, with what to do about it.

    `state` is "ok", "warn" (mudroom works without it) or "fail".
    """

    name: str
    state: str
    # The key in the JSON output must not change: scripts read it.
    result: str = field(name="found")
    remedy: str = ""


REQUEST = "model request"
# Local servers may first load the model.
_SECONDS = 60
# Tokens. A reasoning model needs some before it calls the tool.
_MAX_TOKENS = 2_048
_PROMPT = "Call the tool `note` once, with the text ok. Then you are done."
_START_PARSER = (
    "Start the server with a tool parser (vLLM: --enable-auto-tool-choice and --tool-call-parser, "
    "llama.cpp: --jinja), or use another model."
)


async def _refuse_call(_context: object, _arguments: object) -> ToolResult:
    return ToolResult("noted")


_TOOL = Tool(
    name="note",
    description="Keeps a text.",
    parameters={
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
    parse=dict,
    run=_refuse_call,
)


async def check_request(model: str, environ: Mapping[str, str]) -> Check:
    """Send a model one request without tools."""
    registry = _open_registry(environ)
    try:
        _, seconds, _ = await _ask(registry.get_model(model), RequestConfig(system=""))
    except (MudroomError, TimeoutError) as error:
        return _describe_failure(model, error)
    finally:
        await registry.close()
    return Check(REQUEST, "ok", f"{model} answers in {seconds:.1f} s")


async def check_model(name: str, environ: Mapping[str, str]) -> list[Check]:
    """Send a model one request with a tool, and list the abilities of model and server."""
    registry = _open_registry(environ)
    try:
        await registry.ask_servers(name)
        model = registry.get_model(name)
        config = RequestConfig(system="", tools=(_TOOL,), max_tokens=_MAX_TOKENS)
        answer, seconds, notices = await _ask(model, config)
    except (MudroomError, TimeoutError) as error:
        return [_describe_failure(name, error)]
    finally:
        await registry.close()
    served = f" as {answer.model}" if answer.model and answer.model not in model.name else ""
    checks = [Check(REQUEST, "ok", f"{model.name} answers{served} in {seconds:.1f} s")]
    checks += [Check("repaired request", "warn", notice.error) for notice in notices]
    return [*checks, _check_tools(answer), *_list_abilities(registry, model, answer)]


def _open_registry(environ: Mapping[str, str]) -> ModelRegistry:
    return ModelRegistry(environ, SystemClock(), _refuse_replay)


def _refuse_replay(name: str) -> Model:
    # The doctor only asks servers.
    raise UsageError(f"{name} is no model of a server")


async def _ask(
    model: Model, config: RequestConfig
) -> tuple[AssistantMessage, float, list[RetryNotice]]:
    """Ask a model; return the answer, its seconds, and the repairs needed before it."""
    started_at = time.monotonic()
    notices: list[RetryNotice] = []
    answer = AssistantMessage(())
    async with time_limit(_SECONDS):
        conversation = model.start_conversation(config)
        conversation.append(user_message(_PROMPT if config.tools else "Say hello."))
        async for item in conversation.request_answer():
            if isinstance(item, AssistantMessage):
                answer = item
            elif isinstance(item, RetryNotice):
                notices.append(item)
    return answer, time.monotonic() - started_at, notices


def _describe_failure(model: str, error: Exception) -> Check:
    if isinstance(error, MudroomError):
        remedy = getattr(error, "remedy", "") or "See the log of the server."
        return Check(REQUEST, "fail", getattr(error, "message", str(error)), remedy)
    problem = f"{model} gave no answer within {_SECONDS} seconds"
    return Check(REQUEST, "fail", problem, "Try again when the server has loaded the model.")


def _check_tools(answer: AssistantMessage) -> Check:
    calls = answer.tool_calls
    if any(call.name == _TOOL.name and call.arguments.get("text") for call in calls):
        return Check("tools", "ok", "it called the offered tool, and the server parsed the call")
    if answer.provider_stop_reason == WRITTEN_CALL:
        result = "the server does not parse calls: the call arrived as text"
        return Check("tools", "fail", result, _START_PARSER)
    if calls:
        result = f"it called {calls[0].name} with arguments that do not fit the tool"
        return Check("tools", "warn", result, "Expect failed calls, or use another model.")
    result = "it answered in words, although it was asked to call a tool"
    return Check("tools", "warn", result, "Try again, or use another model.")


def _list_abilities(
    registry: ModelRegistry, model: Model, answer: AssistantMessage
) -> Iterator[Check]:
    name = model.name
    yield Check("reasoning", "ok", _describe_reasoning(answer))
    images = getattr(model, "takes_images", None)
    if images is not None:
        yield Check("images", "ok", "it gets images" if images else "it gets text in their place")
    windows = ContextWindows(registry)
    window = windows.find(name) or windows.look_up(name)
    if window:
        yield Check("context window", "ok", f"{window:,} tokens")
    # For a short request: some models charge more for long ones.
    read, written = (calculate_cost(name, usage) for usage in (Usage(1_000), Usage(0, 1_000)))
    if read is None or written is None:
        remedy = "Limits in dollars do not work with it: limit its tokens."
        yield Check("price", "warn", "not known", remedy)
    else:
        read, written = 1_000 * read, 1_000 * written
        result = f"${read:.2f} per million tokens read, ${written:.2f} per million written"
        yield Check("price", "ok", result)


def _describe_reasoning(answer: AssistantMessage) -> str:
    blocks = [block for block in answer.content if isinstance(block, ThinkingBlock)]
    if not blocks:
        tokens = answer.usage.reasoning_tokens
        return f"{tokens:,} tokens, which the server does not show" if tokens else "none seen"
    field, _, _ = blocks[0].signature.partition(":")
    if field in ("reasoning_content", "reasoning_details"):
        return f"in the field {field}"
    return "signed by the provider" if blocks[0].signature else "shown, without a signature"
