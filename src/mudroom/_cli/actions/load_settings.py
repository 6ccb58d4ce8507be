"""Loads a command line's settings and start options from files, environment and flags."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ..._session import config
from ..._session.options import change_options
from ...errors import UsageError, suggest_names
from ..output.progress import print_notice
from ..output.theme import use_theme
from .session_start import NEW_SESSION, SessionStart, StartOptions
from .user_store import open_store, use_store


def load_settings(cwd: str, **flags: object) -> config.Settings:
    """Load the settings that apply in a folder, and switch to the store and theme they name.

    Raises UsageError if the folder does not exist or a setting is wrong.
    """
    require_folder(cwd)
    settings = config.load_settings(cwd=cwd, environ=os.environ, flags=flags)
    use_store(settings.store or "")
    use_theme(settings.theme, os.environ)
    return settings


def require_folder(cwd: str) -> None:
    if not os.path.isdir(cwd):
        raise UsageError(
            "not a directory" if os.path.exists(cwd) else "no such directory",
            where=cwd,
            remedy="Name a folder with -C.",
        )


def choose_folder(start: SessionStart, cwd: str | None) -> str:
    """Choose the folder a session works in. Raises UsageError if it is gone.

    A session moves to `cwd`, the folder on the command line. None means its own folder, or the
    current one for a new session.
    """
    if cwd is not None or not start.folder:
        return cwd or os.curdir
    if not os.path.isdir(start.folder):
        raise UsageError(
            f"the folder of session {start.resume[:8]} does not exist",
            where=start.folder,
            remedy="If it was moved, name the new one: -C FOLDER (-C . for this folder).",
        )
    return start.folder


def describe_unknown_variables(environ: Mapping[str, str]) -> list[str]:
    prefix = "MUDROOM_"
    known = set(config.list_variables())
    unknown = [name for name in environ if name.startswith(prefix) and name not in known]
    if not unknown:
        return []
    from ..._adapters.models.providers import list_variables  # slow to import

    names = {name.removeprefix(prefix) for name in known if name.startswith(prefix)}
    notices: list[str] = []
    for name in sorted(word.removeprefix(prefix) for word in unknown):
        if name in list_variables():
            continue  # it takes precedence over the variable without the prefix
        if name.lower() in config.SETTING_NAMES:
            remedy = f"Use the setting: mudroom config set {name.lower()} VALUE"
        else:
            # Suggestions are setting names; show them as the variables the user would write.
            remedy = re.sub("[A-Z][A-Z_]+", rf"{prefix}\g<0>", suggest_names(name, names))
        notices.append(f"${prefix}{name} is not used. {remedy}")
    return notices


def _resolve_replayed(settings: config.Settings, cwd: str) -> config.Settings:
    """Replace the names of replayed sessions in the settings' models with session ids.

    Raises UnknownName or UsageError if there is no such session.
    """
    models = (settings.model, settings.model_options.fallback, str(settings.children.model))
    # Most command lines return here, without reading the store.
    if not any("replay:" in model for model in models):
        return settings
    import asyncio

    from ..._session.agent_catalog import parse_child_models
    from .session_store import resolve_replayed

    def resolve(model: str) -> str:
        return asyncio.run(resolve_replayed(open_store(settings.home), cwd, model))

    rules = parse_child_models(settings.children.model)
    resolved = {
        "model": resolve(settings.model),
        "fallback_model": resolve(settings.model_options.fallback),
        "child_model": {agent: resolve(model) for agent, model in rules.items()},
    }
    return change_options(settings, resolved)


def prepare_start(
    cwd: str | None,
    selection: Mapping[str, Any],
    flags: Mapping[str, object],
    *,
    verbose: bool,
    quiet: bool,
    asks_at_prompt: bool = False,
) -> StartOptions:
    """Select the session with the flags of `selection`, and load the settings of its folder."""
    start = NEW_SESSION
    here = cwd or os.curdir
    if any(value not in (None, False) for value in selection.values()):
        import asyncio  # slow to import, as are the next ones

        from .session_store import select_session

        require_folder(here)
        # The folder, and so its settings, is known only once the session is found. The store
        # therefore comes from flag, environment and the user's file.
        use_store(str(flags.get("store") or config.load_store(os.environ)))
        store = open_store(config.load_home(os.environ))
        start = asyncio.run(select_session(store, here, asks_at_prompt=asks_at_prompt, **selection))
    folder = choose_folder(start, cwd)
    settings = _resolve_replayed(load_settings(folder, **flags), folder)
    if not quiet:
        for notice in describe_unknown_variables(os.environ):
            print_notice(notice)
    return StartOptions(settings=settings, cwd=folder, start=start, verbose=verbose, quiet=quiet)
