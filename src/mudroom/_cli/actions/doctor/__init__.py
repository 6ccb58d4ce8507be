"""`mudroom doctor`: checks what this machine has.

It changes nothing and prints no key. Only models on this machine are sent a request. MCP servers
that a session here would use are started, wherever they are.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping

from ...._adapters.agent_files import count_by_severity
from ...._adapters.journals.sessions import read_events
from ...._adapters.tools._ripgrep import find_ripgrep
from ...._core.listings import count_noun, format_size
from ...._core.messages import user_message
from ...._core.ports import Model, RequestConfig
from ...._platform.time_limits import SystemClock, time_limit
from ...._session import config
from ...._session.context_windows import LearntWindows
from ...._session.model_registry import ModelRegistry, choose_default_model, explain_unusable
from ...._version import __version__
from ....errors import JournalError, MudroomError, UsageError, WorkspaceError
from ...output.json_output import print_json
from ...output.listing import print_entry, print_rows
from ..load_permissions import load_permissions
from ..load_settings import describe_unknown_variables, load_settings
from ..user_store import open_store, use_store
from .check import Check
from .mcp import check_mcp_package, check_servers
from .providers import ProviderRow, list_providers

# The newest sessions, whose journals are read.
CHECKED_SESSIONS = 20

STATE_LABELS = {"ok": "ok  ", "warn": "note", "fail": "FAIL"}
_MIN_FREE_BYTES = 100e6
_REQUEST = "model request"
# Local servers may first load the model.
_REQUEST_SECONDS = 60
_REQUEST_MAX_TOKENS = 16


def print_checks(*, as_json: bool) -> int:
    """Print all checks; return 1 if one failed, else 0."""
    checks: list[Check] = []
    for check in run_checks(os.environ, starts_servers=True):
        checks.append(check)
        if not as_json:
            _print_check(check)
    if as_json:
        print_json({"version": __version__, "checks": checks})
    return int(any(check.state == "fail" for check in checks))


def _print_check(check: Check) -> None:
    print_entry(f"{STATE_LABELS[check.state]}  {check.name}: {check.result}", indent=6)
    if check.remedy:
        print_rows([("    ", check.remedy)])


def run_checks(environ: Mapping[str, str], *, starts_servers: bool) -> Iterator[Check]:
    """Run all checks, one after another.

    Arguments:
        starts_servers: start each MCP server that a session here would use, once.
    """
    yield Check("mudroom", "ok", __version__)
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Check("platform", "ok", platform.platform())
    home = config.find_home(environ)
    yield _check_settings(environ)
    yield _check_home(home)
    yield _check_journals(home, environ)
    yield from _check_workspaces(home)
    yield from _check_models(environ)
    yield _check_agents()
    yield from _check_child_models(environ)
    yield from _check_learnt_windows(home)
    yield _check_permissions()
    yield from _check_programs(starts_servers=starts_servers)
    yield check_mcp_package()
    yield from _check_traces()
    yield _check_sandbox(environ)
    rg = find_ripgrep(os.getcwd())
    missing = "not found: the tool grep does not work"
    yield _check_program("rg", rg, missing, "Install ripgrep.")
    missing = "not on PATH: agents cannot run git commands"
    yield _check_program("git", shutil.which("git"), missing, "Install git.")


def _check_settings(environ: Mapping[str, str]) -> Check:
    try:
        settings = config.load_settings(cwd=".", environ=environ, flags={})
    except MudroomError as error:
        return Check("settings", "fail", str(error), "Fix or remove that line.")
    path = config.find_user_file(environ)
    origins = ", ".join(f"{name} from {origin}" for name, origin in settings.origins.items())
    unused = " ".join(describe_unknown_variables(environ))
    note = "" if path.exists() else " (no file)"
    result = f"{path}{note}: {origins or 'all settings have their defaults'}"
    return Check("settings", "warn" if unused else "ok", result, unused)


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


def _check_journals(home: str, environ: Mapping[str, str]) -> Check:
    try:
        use_store(config.load_store(environ))
        errors = asyncio.run(_read_newest_journals(home))
    except (JournalError, UsageError) as error:
        return Check("journals", "fail", str(error))
    count = len(errors)
    errors = [error for error in errors if error]
    if errors:
        result = f"{len(errors)} of the last {count} sessions cannot be read: {errors[0]}"
        return Check("journals", "fail", result, "The other sessions are not affected.")
    return Check("journals", "ok", f"last {count} sessions OK" if count else "no sessions yet")


def _check_workspaces(home: str) -> Iterator[Check]:
    from ...._adapters.workspaces.isolated.git import INSTALL_GIT, explain_unusable_git
    from ...._adapters.workspaces.isolated.kept_work import list_kept, measure_kept

    if reason := explain_unusable_git():
        yield Check("isolated workspaces", "warn", f"they need git: {reason}", f"{INSTALL_GIT}.")
        return
    try:
        kept_size = measure_kept(home)
        kept = list_kept(home)
    except WorkspaceError as error:
        yield Check("isolated workspaces", "fail", str(error))
        return
    if not kept_size.sessions:
        return
    not_merged = sum(work.state == "not merged" for work in kept)
    result = (
        f"{format_size(kept_size.size)} of {count_noun(kept_size.sessions, 'session')} in "
        f"{kept_size.folder}; work of {count_noun(len(kept), 'run')}, {not_merged:,} not merged"
    )
    yield Check("isolated workspaces", "ok", result)


async def _read_newest_journals(home: str) -> list[str]:
    """Read the newest journals to their ends; return for each why it cannot be read, or ""."""
    store = open_store(home)
    errors: list[str] = []
    for info in (await store.list())[:CHECKED_SESSIONS]:
        try:
            await read_events(store, info.id)
        except JournalError as error:
            errors.append(str(error))
        else:
            errors.append("")
    return errors


def _check_models(environ: Mapping[str, str]) -> Iterator[Check]:
    # Several providers share an address: one for each protocol of the server.
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
            yield asyncio.run(_check_request(default, environ))
        return
    yield Check(
        "models",
        "warn",
        "no key and no local server found: mudroom uses its offline demo model",
        "To use a real model, set ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY,"
        " OPENAI_BASE_URL or OLLAMA_HOST.",
    )


async def _check_request(model: str, environ: Mapping[str, str]) -> Check:
    registry = ModelRegistry(environ, SystemClock(), _refuse_replay)
    try:
        async with time_limit(_REQUEST_SECONDS):
            conversation = registry.get_model(model).start_conversation(
                RequestConfig(system="", max_tokens=_REQUEST_MAX_TOKENS)
            )
            conversation.append(user_message("Say hello."))
            async for _ in conversation.request_answer():
                pass
    except TimeoutError:
        problem = f"{model} gave no answer within {_REQUEST_SECONDS} seconds"
        return Check(_REQUEST, "fail", problem, "Try again when the server has loaded the model.")
    except MudroomError as error:
        return Check(_REQUEST, "fail", str(error), "See the log of the server.")
    finally:
        await registry.close()
    return Check(_REQUEST, "ok", f"{model} answers")


def _refuse_replay(name: str) -> Model:
    # The doctor asks servers only.
    raise UsageError(f"{name} is no model of a server")


def _check_agents() -> Check:
    from ..agents import collect_findings, load_agents

    try:
        findings = collect_findings(".")
        loaded = load_agents(".")
    except MudroomError as error:
        return Check("agents", "fail", str(error))
    problems = [finding for finding in findings if finding.severity != "note"]
    agent_count = len(loaded.agents) + len(loaded.main_agents)
    agents = count_noun(agent_count, "agent")
    counts = f"{agents} and {count_noun(len(loaded.skills), 'skill')} from files"
    if not problems:
        return Check("agents", "ok", counts)
    result = f"{counts}; {count_by_severity(findings)}, the first: {problems[0]}"
    return Check("agents", "warn", result, "mudroom agents check lists them all.")


def _check_child_models(environ: Mapping[str, str]) -> Iterator[Check]:
    from ..agents import list_child_models

    name = "child models"
    notices: list[str] = []
    try:
        models = list_child_models(".", notices)
    except MudroomError as error:
        yield Check(name, "fail", str(error))
        return
    reasons = {model: explain_unusable(model, environ) for model in models.values() if model}
    unusable = [f"{model} cannot be used ({why})" for model, why in reasons.items() if why]
    if unusable:
        yield Check(name, "fail", "; ".join(unusable), "Change the setting child_model.")
    elif notices:
        yield Check(name, "warn", "; ".join(notices), "Change the setting child_model.")
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


def _check_permissions() -> Check:
    try:
        permissions, notices = load_permissions(load_settings("."), ".")
    except MudroomError as error:
        return Check("permissions", "fail", str(error))
    result = f"mode {permissions.mode}, {count_noun(len(permissions.rules), 'rule')}"
    if notices:
        return Check("permissions", "warn", f"{result}; {'; '.join(notices)}")
    return Check("permissions", "ok", result)


def _check_programs(*, starts_servers: bool) -> Iterator[Check]:
    """Check MCP servers, hooks and plugins, and their files; no row for what there is not.

    Arguments:
        starts_servers: start each server that is used.
    """
    from ..programs.load_programs import require_programs

    try:
        settings = load_settings(".")
        programs = require_programs(settings, ".")
    except MudroomError as error:
        yield Check("MCP servers and hooks", "fail", str(error))
        return
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
    """Check the export of traces; no row if no variable names an address."""
    from ..export.export_traces import describe_tracing

    state, result, remedy = describe_tracing()
    if state:
        yield Check("traces", state, result, remedy)


def _check_sandbox(environ: Mapping[str, str]) -> Check:
    from ...._adapters.sandboxes import detect

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
