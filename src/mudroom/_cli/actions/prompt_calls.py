"""The user's calls of commands and skills: rules, shell commands in the text, the prompt."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ..._adapters.agent_files.prompt_template import PromptTemplate, ShellText
from ..._adapters.integrations.program_trust import PromptRights, load_trusted_programs
from ..._adapters.output_filters import Redactor
from ..._adapters.tools.bash import BASH
from ..._core.ports import ApprovalRequest, Approver, Sandbox, Workspace
from ..._core.runs import Report
from ..._core.tools import ToolResult
from ..._platform.private_files import make_spill_file
from ..._projections.safe_text import escape_line
from ..._session.config import Settings
from ..._session.model_registry import explain_unusable
from ..._session.session import Session
from ...errors import UsageError
from ...permissions.rules import Permissions, Rule, Verdict, parse_rule
from .load_permissions import is_trusted, make_policy
from .prompt_files import PromptFile, find_rights
from .prompts import fetch_prompt, prepare_prompt


class ShellEscape:
    """The bash tool's ToolContext when the user calls it."""

    def __init__(self, session: Session, home: str) -> None:
        self.run_id = "shell"
        self.traceparent = ""
        self.turn = 0
        self.memo: dict[str, Any] = {}
        self.workspace: Workspace = session.workspace
        self.sandbox: Sandbox = session.sandbox
        self.redact = Redactor(os.environ)
        self._folder = os.path.join(home, "spills", session.id)

    async def run(self, command: str) -> str:
        """Run a command to its end; return its output, cut as for a model. Cancelling kills it."""
        try:
            result = await BASH.run(self, BASH.parse({"command": command}))
        except ValueError as error:
            return str(error)
        return result.text

    async def run_detachable(
        self, title: str, work: Coroutine[Any, Any, ToolResult], on_detach: Callable[[], object]
    ) -> ToolResult:
        # No run could read the result later.
        return await work

    def spill_path(self, name: str) -> str:
        return make_spill_file(self._folder, f"shell-{name}")


_TRUST_REMEDY = "Read the file, then: mudroom trust add, or --trust for one run."


class PromptCall(Struct, frozen=True):
    """A call of a command or skill, with allow rules for this call only."""

    file: PromptFile
    template: PromptTemplate
    arguments: str
    rules: tuple[Rule, ...] = ()
    notices: tuple[str, ...] = ()


class FilledPrompt(Struct):
    """A call's prompt, with marks where the outputs of commands go.

    `model` applies to this prompt only, "" for the session's. `typed` is the part the user wrote,
    if the rest is not the user's.
    """

    line: str
    model: str = ""
    outputs: dict[str, str] = field(default_factory=dict[str, str])
    typed: str | None = None

    def put_outputs(self, text: str) -> str:
        # After mentions are expanded, so that a mention in an output means nothing.
        for mark, output in self.outputs.items():
            text = text.replace(mark, output)
        return text


def make_call(
    file: PromptFile,
    arguments: str,
    settings: Settings,
    cwd: str,
    trusted: Collection[str] = (),
) -> PromptCall:
    """Make a call of the user's own file, or of one whose rights the user trusts.

    `trusted` are digests of rights the user trusts for this session. Raises UsageError if the
    file runs shell commands that the user has not trusted.
    """
    template = file.source.load_template()
    # Rights and text must come from the same reading: the file may change meanwhile.
    rights = find_rights(file, template)
    path = file.source.path
    notices: list[str] = []
    texts: tuple[str, ...] = ()
    if _has_rights(file, rights, settings.home, trusted):
        texts = rights.rules
    elif rights.commands:
        raise UsageError(
            f"{file.name} is not sent, because you have not trusted the shell commands in it: "
            + "; ".join(escape_line(command) for command in rights.commands),
            where=path,
            remedy=f"{_TRUST_REMEDY} A session that is open asks again at its next start.",
        )
    elif rights.rules:
        notices.append(_describe_unused("allowed-tools", path))
    model = _choose_model(file, template.model, settings, cwd, notices)
    rules: list[Rule] = []
    for text in texts:
        try:
            rules.append(parse_rule(text, Verdict.ALLOW, origin=path))
        except UsageError as error:
            notices.append(str(error))
    template = replace(template, model=model)
    return PromptCall(file, template, arguments, tuple(rules), tuple(notices))


def _choose_model(
    file: PromptFile, wanted: str, settings: Settings, cwd: str, notices: list[str]
) -> str:
    path = file.source.path
    if wanted in ("", "inherit"):
        return ""
    # A stranger's file must not choose a model, because the user pays for it.
    if not (file.source.is_personal or is_trusted(settings, cwd)):
        notices.append(_describe_unused("model", path))
        return ""
    if reason := explain_unusable(wanted, os.environ):
        notices.append(f"{path}: the model {wanted} cannot be used ({reason})")
        return ""
    return wanted


def _describe_unused(key: str, path: str) -> str:
    return (
        f"not used: {key} of {path}, because you have not trusted this folder, or the file has"
        f" changed since. {_TRUST_REMEDY}"
    )


def _has_rights(
    file: PromptFile, rights: PromptRights, home: str, trusted: Collection[str]
) -> bool:
    """Return whether a file is the user's, or the user trusts exactly what it may do."""
    if file.source.is_personal or rights.digest in trusted:
        return True
    listed = load_trusted_programs(home).get(rights.place, ()) if rights.place else ()
    return rights.digest in listed


async def fill_call(
    call: PromptCall,
    session: Session,
    settings: Settings,
    permissions: Permissions,
    approver: Approver | None = None,
) -> FilledPrompt:
    """Fill in a call's prompt, after running the shell commands in its text one by one.

    The rules judge a command like one from the model, and it runs in the sandbox. Without an
    approver, a command that needs confirmation is refused. Raises UsageError for a refused command,
    and for a file without text.
    """
    pieces = call.template.fill(call.arguments)
    if any(isinstance(piece, ShellText) for piece in pieces) and (by := _find_forbidding(session)):
        raise UsageError(
            f"the shell commands in {call.file.source.path} are not run",
            where=by,
            remedy="Remove disableSkillShellExecution, or the commands.",
        )
    typed = None if call.file.source.is_personal else call.arguments
    prompt = FilledPrompt("", call.template.model, typed=typed)
    import shlex

    exports = "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in call.template.variables.items()
    )
    for piece in pieces:
        if isinstance(piece, str):
            prompt.line += piece
            continue
        if piece.problem:
            raise UsageError(
                f"the command {escape_line(piece.source)} is not run: {piece.problem}",
                where=call.file.source.path,
                remedy="Leave these characters out, or write the command so that its arguments"
                " are words of its own.",
            )
        await _require_permission(call, piece.command, session, permissions, approver)
        # Control characters, which nobody types: the mark cannot occur by accident.
        mark = f"\x02{len(prompt.outputs)}\x03"
        command = f"{exports}{piece.command}"
        prompt.outputs[mark] = await ShellEscape(session, settings.home).run(command)
        prompt.line += mark
    if not prompt.line.strip():
        problem = call.template.problem or "the prompt is empty"
        raise UsageError(problem, where=call.file.source.path)
    prompt.line = call.file.enclose(prompt.line)
    return prompt


async def run_forked(
    call: PromptCall,
    filled: FilledPrompt,
    session: Session,
    settings: Settings,
    warn: Callable[[str], None],
    data: str = "",
    **options: Any,
) -> Report:
    # A child has no team to mention.
    prompt = await prepare_prompt(session, settings, filled.line, teammates=(), typed=filled.typed)
    for note in prompt.notes:
        warn(note)
    return await session.task(
        filled.put_outputs(prompt.text) + data + prompt.files,
        agent=call.template.agent or "general",
        model=call.template.model or None,
        description=call.file.name,
        **options,
    )


def _find_forbidding(session: Session) -> str:
    """Find the settings file that forbids shell commands in files, "" for none."""
    from ..._adapters.integrations.plugins.load import load_plugin_settings
    from ..._platform.git_folders import list_project_folders

    user_home = os.environ.get("HOME", "")
    return load_plugin_settings(list_project_folders(session.cwd), user_home, []).forbids_commands


async def _require_permission(
    call: PromptCall,
    command: str,
    session: Session,
    permissions: Permissions,
    approver: Approver | None,
) -> None:
    """Raise UsageError if a call's shell command is refused."""
    rules = (*permissions.rules, *call.rules)
    policy = make_policy(
        replace(permissions, rules=rules), session.cwd, tier=lambda: session.sandbox.tier
    )
    arguments = {"command": command}
    verdict = policy.decide(BASH, arguments, permissions.mode)
    why = verdict.why
    if verdict.verdict == Verdict.ALLOW:
        return
    if verdict.verdict == Verdict.ASK and approver:
        request = ApprovalRequest(
            "", call.file.name, "bash", arguments, why=why, category=BASH.category
        )
        decision = await approver.decide(request)
        if decision.allowed:
            return
        why = decision.why
    raise UsageError(
        f"the command {command} is refused: {why}",
        where=call.file.source.path,
        remedy="Allow it with a rule, such as --allowed-tools, or remove it from the file.",
    )


_MARK = "\x020\x03"


async def fetch_filled(session: Session, line: str) -> FilledPrompt:
    """Fetch the server's prompt that a line calls. Raises MudroomError if there is none."""
    name, _, words = line.partition(" ")
    fetched = await fetch_prompt(session, name, words.strip())
    if fetched is None:
        raise UsageError(
            f"{name}: the session has no MCP server", remedy="See which ones are used: mudroom mcp"
        )
    return make_filled(fetched)


def make_filled(text: str) -> FilledPrompt:
    """Turn a server's text into a prompt in which mentions mean nothing."""
    # Treated as a command's output, which is inserted after mentions are expanded.
    return FilledPrompt(_MARK, outputs={_MARK: text})
