"""What this machine has and lacks: `mudroom doctor` and `mudroom models`. Reads only, and shows no key."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import islice
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ... import config
from ..._version import __version__
from ...agent_files import count_by_severity
from ...config import Settings
from ...errors import JournalError, MudroomError
from ...models import providers as table
from ...projections.safe_text import sanitize
from .list_sessions import iterate_sessions, summarize_session

CHECKED_SESSIONS = 20
"""How many of the newest records are read through."""

STATE_LABELS = {"ok": "ok  ", "warn": "note", "fail": "FAIL"}


class Check(Struct, frozen=True):
    """One thing looked at.

    Arguments:
        name: what it is. state: "ok", "warn" (it works without) or "fail". found: what there is. remedy: what to do.
    """

    name: str
    state: str
    found: str
    remedy: str = ""


def run_checks() -> list[Check]:
    """Look at everything."""
    return list(_checks(os.environ))


def print_checks(*, as_json: bool) -> int:
    """Print all checks; the exit code: 1 if one has failed."""
    checks = run_checks()
    if as_json:
        print(
            json.dumps(
                {"version": __version__, "checks": msgspec.to_builtins(checks)},
                ensure_ascii=False,
                indent=2,
            )
        )
    else:
        for check in checks:
            print(f"{STATE_LABELS[check.state]}  {check.name}: {sanitize(check.found)}")
            if check.remedy:
                print(f"      {sanitize(check.remedy)}")
    return int(any(check.state == "fail" for check in checks))


class ProviderRow(Struct, frozen=True):
    """One provider.

    Arguments:
        provider: its name. wire: the protocol. found: whether it can be used here. by: the variable that says so.
        wanted: the variable to set. base_url: where it is. model: its default model. reachable: None where it was not tried.
    """

    provider: str
    wire: str
    found: bool
    by: str
    wanted: str
    base_url: str
    model: str
    reachable: bool | None = None


def print_providers(settings: Settings, *, as_json: bool) -> int:
    """Print who serves models, and whose key or address is found; the exit code."""
    listed, chosen = list_providers(os.environ), _model_in_use(settings, os.environ)
    if as_json:
        print(
            json.dumps(
                {"model": chosen, "providers": msgspec.to_builtins(listed)},
                ensure_ascii=False,
                indent=2,
            )
        )
        return 0
    print(f"Model: {chosen} ({settings.origin('model')})")
    for row in sorted(
        (row for row in listed if row.wire != "library"), key=lambda row: not row.found
    ):
        state = f"found {row.by}".rstrip() if row.found else f"set {row.wanted}"
        print(
            sanitize(
                f"{row.provider:<11} {row.wire:<9} {state:<26} {row.model}{_reachable_text(row)}"
            )
        )
    print(
        f"By the extra mudroom[providers]: {', '.join(row.provider for row in listed if row.wire == 'library')}"
    )
    return 0


def list_providers(environ: Mapping[str, str]) -> list[ProviderRow]:
    """All providers but the one of tests. Only a server on this machine is knocked at; nothing is sent to others."""
    return [
        _row(provider, environ)
        for provider in table.PROVIDERS.values()
        if provider.wire != "scripted"
    ]


def _row(provider: table.Provider, environ: Mapping[str, str]) -> ProviderRow:
    address = next((name for name in provider.url_vars if environ.get(name, "").strip()), "")
    by = table.find_key_variable(provider, environ) if table.has_key(provider, environ) else address
    url = urlsplit(table.get_base_url(provider, environ))
    place = (
        f"{url.scheme}://{url.hostname}{f':{url.port}' if url.port else ''}{url.path}"
        if url.hostname
        else ""
    )
    knock = by and url.hostname in ("localhost", "127.0.0.1", "::1")
    return ProviderRow(
        provider=provider.name,
        wire=provider.wire,
        found=bool(by) or provider.wire == "offline",
        by=by,
        wanted=next(iter(provider.url_vars if provider.is_local else provider.key_vars), ""),
        base_url=place,
        model=provider.default_model,
        reachable=_accepts_connections(
            str(url.hostname), url.port or (443 if url.scheme == "https" else 80)
        )
        if knock
        else None,
    )


def _accepts_connections(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _reachable_text(row: ProviderRow) -> str:
    return (
        ""
        if row.reachable is None
        else f"  {row.base_url} {'answers' if row.reachable else 'does not answer'}"
    )


def _model_in_use(settings: Settings, environ: Mapping[str, str]) -> str:
    return (
        (table.choose_default_model(environ) or "offline")
        if settings.model == "auto"
        else settings.model
    )


def _checks(environ: Mapping[str, str]) -> Iterator[Check]:
    yield Check("mudroom", "ok", __version__)
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Check("platform", "ok", platform.platform())
    home = config.find_home(environ)
    yield _settings(environ)
    yield _writable(home)
    yield _journals(home)
    yield from _models(environ)
    yield _agents(environ)
    yield _sandbox(environ)
    yield _program("rg", "grep is done in Python, slower", "Install ripgrep.")
    yield _program("git", "ignore files are honoured, worktrees are not to be had", "Install git.")


def _settings(environ: Mapping[str, str]) -> Check:
    try:
        settings = config.load_settings(cwd=".", environ=environ, flags={})
    except MudroomError as error:
        return Check("settings", "fail", str(error), "Mend or remove that line.")
    origins = ", ".join(f"{name} from {where}" for name, where in settings.origins.items())
    return Check(
        "settings",
        "ok",
        f"{config.find_user_file(environ)}{'' if origins else ' (nothing set)'} {origins}".strip(),
    )


def _writable(home: str) -> Check:
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=home) as probe:
            probe.write(b"x")
    except OSError as error:
        return Check(
            "home",
            "fail",
            f"{home} cannot be written: {error.strerror}",
            "Set MUDROOM_HOME to a folder that can.",
        )
    free = shutil.disk_usage(home).free
    return Check("home", "ok" if free > 100e6 else "warn", f"{home}, {free / 1e9:.1f} GB free")


def _journals(home: str) -> Check:
    total, broken = 0, list[str]()
    try:
        for info in islice(iterate_sessions(home), CHECKED_SESSIONS):
            total += 1
            if trouble := summarize_session(info).trouble:
                broken.append(trouble)
    except JournalError as error:
        return Check("journals", "fail", str(error))
    if broken:
        return Check(
            "journals",
            "fail",
            f"{len(broken)} of the {total} newest cannot be read: {broken[0]}",
            "The others are not affected.",
        )
    return Check(
        "journals", "ok", f"{total} newest read through, all whole" if total else "none yet"
    )


def _models(environ: Mapping[str, str]) -> Iterator[Check]:
    listed = [row for row in list_providers(environ) if row.by]
    for row in listed:
        if row.reachable is False:
            yield Check(
                f"model server of {row.provider}",
                "warn",
                f"{row.base_url} does not answer",
                f"Start it, or unset {row.by}.",
            )
    if listed:
        yield Check(
            "models",
            "ok",
            f"{table.choose_default_model(environ)} is the default; found {', '.join(row.by for row in listed)}",
        )
    else:
        remedy = "For a real one set ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, OPENAI_BASE_URL or OLLAMA_HOST."
        yield Check(
            "models",
            "warn",
            "no key and no local server found: the offline model is used, which knows a few tasks",
            remedy,
        )


def _agents(environ: Mapping[str, str]) -> Check:
    from .agents import collect_findings, load_agent_files

    findings, here = collect_findings(".", environ), load_agent_files(".", environ)
    wrong = [finding for finding in findings if finding.severity != "note"]
    what = (
        f"{len(here.agents) + len(here.main_agents)} agents and {len(here.skills)} skills in files"
    )
    if not wrong:
        return Check("agents", "ok", what)
    return Check(
        "agents",
        "warn",
        f"{what}; {count_by_severity(findings)}, the first: {wrong[0]}",
        "mudroom agents check lists them all.",
    )


def _sandbox(environ: Mapping[str, str]) -> Check:
    from ...sandboxes import detect

    remedy = "Install bubblewrap (apt install bubblewrap, dnf install bubblewrap)."
    found = detect.run_probes(detect.find_bwrap(environ, os.getcwd()))
    if found.weakness:
        return Check(
            "sandbox",
            "warn",
            f"full, but {found.weakness.partition('. ')[0]}",
            "Work as another user than root.",
        )
    if found.tier == "full":
        return Check(
            "sandbox",
            "ok",
            f"full: commands see the workspace and the system, read-only; no network ({found.bwrap})",
        )
    if found.tier == "file":
        return Check(
            "sandbox",
            "warn",
            f"file: commands are held by Landlock and a filter, not by namespaces: {found.no_full_reason}",
            remedy,
        )
    words = f"none: every command must be confirmed, and where nobody can, none runs: {found.no_full_reason}; {found.no_file_reason}"
    return Check("sandbox", "warn", words, remedy)


def _program(name: str, without: str, remedy: str) -> Check:
    path = shutil.which(name)
    return (
        Check(name, "ok", path) if path else Check(name, "warn", f"not on PATH: {without}", remedy)
    )
