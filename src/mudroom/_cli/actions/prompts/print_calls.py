"""Calls of commands and skills in `mudroom -p "/NAME ..."`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ...._core.runs import Report
from ...._core.tool_names import SERVER_PREFIX
from ...._platform.patterns import compile_later
from ...._session.config import Settings
from ....errors import UnknownName, suggest_names
from ..load_permissions import LoadedPermissions, is_trusted
from . import prepare_prompt, run_prepared

if TYPE_CHECKING:
    from ...._adapters.integrations.usable_programs import UsablePrograms
    from ...._session.session import Session
    from .prompt_calls import FilledPrompt, PromptCall


HINT = (
    "mudroom -p calls commands of files, skills, and prompts of MCP servers. For all others start "
    "mudroom and type them."
)

_AS_TEXT = "A space before the slash makes it text for the model."

_COMMAND = compile_later(rf"/(?!{SERVER_PREFIX})[A-Za-z][\w:-]*")


def find_call(
    words: str, settings: Settings, cwd: str, programs: UsablePrograms | None
) -> PromptCall | None:
    """Return the call that a prompt is; None for text, and for a prompt of an MCP server.

    Raises UnknownName if the first word looks like a command and is neither one nor a path.
    """
    if not words.startswith("/"):
        return None
    from .prompt_calls import make_call  # slow to import, as is the next one
    from .prompt_files import find_prompt_file, load_prompt_files

    name, _, arguments = words.partition(" ")
    plugins = programs.plugins if programs else ()
    trusts_folder = is_trusted(settings, cwd)
    files = load_prompt_files(os.path.realpath(cwd), plugins, trusts_folder=trusts_folder)
    file = find_prompt_file(files, name, trusts_folder=trusts_folder)
    if file:
        trusted = programs.trusted_prompts if programs else ()
        return make_call(file, arguments.strip(), settings, cwd, trusted)
    if _COMMAND.fullmatch(name) and not os.path.lexists(name):
        remedy = suggest_names(name, files, otherwise=HINT)
        raise UnknownName("command", name, files, remedy=f"{remedy} {_AS_TEXT}")
    return None


def add_rules(call: PromptCall | None, loaded: LoadedPermissions) -> LoadedPermissions:
    """Add a call's rules to the permissions; the session runs no other prompt."""
    if call is None:
        return loaded
    permissions = loaded.permissions
    permissions = replace(permissions, rules=(*permissions.rules, *call.rules))
    notices = (*loaded.notices, *call.notices)
    return LoadedPermissions(permissions, notices)


class WordsRun(Struct):
    """Runs the prompt of a command line.

    Arguments:
        loaded: the session's permissions. warn: takes each note, a line for the user.
        teammates: see `prepare_prompt`.
    """

    session: Session
    settings: Settings
    loaded: LoadedPermissions
    warn: Callable[[str], None]
    teammates: Collection[str]

    async def run(self, call: PromptCall | None, words: str, data: str, **options: Any) -> Report:
        """Run the prompt, or that of the file or MCP server that it calls.

        Arguments:
            words: of the command line. data: follows them.
            options: further arguments of `Session.run` and `Session.task`.
        """
        if call is None and words.startswith(f"/{SERVER_PREFIX}"):
            from .server_prompts import fetch_filled

            fetched = await fetch_filled(self.session, words)
            return await self._run_line(fetched.line, data, options, fetched)
        if call is None:
            return await self._run_line(words, data, options)
        from .prompt_calls import fill_call, run_forked

        session = self.session
        settings = self.settings
        filled = await fill_call(call, session, settings, self.loaded.permissions)
        if call.template.forks:
            return await run_forked(call, filled, session, settings, self.warn, data, **options)
        options["model"] = call.template.model
        return await self._run_line(filled.line, data, options, filled)

    async def _run_line(
        self, line: str, data: str, options: dict[str, Any], filled: FilledPrompt | None = None
    ) -> Report:
        typed = filled.typed if filled else None
        prompt = await prepare_prompt(
            self.session, self.settings, line, teammates=self.teammates, typed=typed
        )
        if filled:
            prompt.text = filled.put_outputs(prompt.text)
        return await run_prepared(self.session, prompt, data, self.warn, **options)
