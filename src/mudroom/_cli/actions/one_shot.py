"""One prompt, one answer: the answer goes to stdout, everything else to stderr."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Collection, Sequence
from typing import IO, TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..._core.agents import Mode
from ..._core.events import StoredEvent
from ..._core.listings import format_size
from ..._core.messages import estimate_tokens
from ..._core.runs import Report
from ..._core.tool_names import SERVER_PREFIX
from ..._platform.event_loop import run_event_loop
from ..._platform.patterns import compile_later
from ..._projections.run_tree import RunTree, list_names
from ..._session.config import Settings
from ..._session.session import Session
from ...errors import SessionPaused, UnknownName, UsageError, suggest_names
from ..output.notices.log import show_log
from ..output.progress import print_notice
from ..output.run_reporter import RunReporter
from ..output.signals import handle_signals
from .load_permissions import LoadedPermissions, is_trusted, load_permissions
from .open_session import create_session, name_session
from .programs.load_programs import list_server_names, load_programs
from .prompts import MANY_TOKENS, prepare_prompt, run_prepared
from .session_start import SessionStart, StartOptions, describe_continued
from .session_store import delete_expired_sessions

if TYPE_CHECKING:
    from ..._adapters.integrations.usable_programs import UsablePrograms
    from .prompt_calls import FilledPrompt, PromptCall


MAX_STDIN_BYTES = 10 * 1024 * 1024

# Seconds to wait for the first byte: many programs neither write to nor close their pipe.
STDIN_TIMEOUT = 3.0


def read_prompt(
    words: str | None,
    stdin: IO[Any] | None,
    *,
    wait: bool,
    warn: Callable[[str], None],
    timeout: float = STDIN_TIMEOUT,
) -> str:
    """Read the whole prompt.

    `words` is the command line's prompt; None if all of it comes from stdin. stdin is read to its
    end if `wait`, or if its first byte arrives within `timeout` seconds. Raises UsageError if the
    prompt is empty, too large, or not UTF-8.
    """
    if words is None:
        piped = _decode(_read_pipe(stdin, None, warn), warn).strip()
        if not piped:
            raise UsageError(
                "the prompt is empty",
                remedy='Nothing came on stdin. Describe the task: mudroom -p "…"',
            )
        return piped
    if not words.strip():
        raise UsageError(
            "the prompt is empty",
            remedy='Describe the task: mudroom -p "find the testing framework"',
        )
    try:
        # Arguments that are not UTF-8 contain surrogates, which no provider accepts.
        words.encode()
    except UnicodeEncodeError:
        raise UsageError("the prompt is not UTF-8", remedy="Check the terminal's locale.") from None
    piped = _decode(_read_pipe(stdin, None if wait else timeout, warn), warn)
    if not piped.strip():
        return words
    from ..._projections.engine_text import quote, wrap  # most prompts have no input

    return f"{words}\n\n{wrap('stdin', quote(piped.rstrip()))}"


def _decode(data: bytes, warn: Callable[[str], None]) -> str:
    """Decode stdin's text; warn if it costs a lot."""
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"stdin is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
            remedy="Convert it first (iconv -t utf-8), or name the file in the prompt.",
        ) from None
    tokens = estimate_tokens(text)
    if tokens >= MANY_TOKENS:
        warn(
            f"stdin has {format_size(len(data))}, about {tokens:,} tokens, which each request "
            "sends; name a file instead, and only what is read of it is sent"
        )
    return text


def _read_pipe(stdin: IO[Any] | None, timeout: float | None, warn: Callable[[str], None]) -> bytes:
    if stdin is None or stdin.isatty():
        return b""
    descriptor = stdin.fileno()
    try:
        readable, _, _ = select.select([descriptor], [], [], timeout)
        if readable:
            return _read_all(descriptor)
        warn(
            f"no input on stdin within {timeout:.0f} s; continuing without it"
            ' (add "-" after the prompt to wait for it)'
        )
    except OSError as error:
        warn(f"stdin cannot be read ({error.strerror}); continuing without it")
    return b""


def _read_all(descriptor: int) -> bytes:
    data = bytearray()
    while chunk := os.read(descriptor, 1 << 20):
        data += chunk
        if len(data) > MAX_STDIN_BYTES:
            raise UsageError(
                "stdin is larger than 10 MB",
                remedy="Save it as a file in the folder and name that file in the prompt.",
            )
    return bytes(data)


HINT = (
    "mudroom -p calls commands of files, skills, and prompts of MCP servers. For all others start "
    "mudroom and type them."
)

_AS_TEXT = "A space before the slash makes it text for the model."

_COMMAND = compile_later(rf"/(?!{SERVER_PREFIX})[A-Za-z][\w:-]*")


def find_call(
    words: str, settings: Settings, cwd: str, programs: UsablePrograms | None
) -> PromptCall | None:
    """Find the call that a prompt makes; None for text, and for an MCP server's prompt.

    Raises UnknownName if the first word looks like a command but is neither one nor a path.
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
    """Add a call's rules to the permissions; the session runs only this prompt."""
    if call is None:
        return loaded
    permissions = loaded.permissions
    permissions = replace(permissions, rules=(*permissions.rules, *call.rules))
    notices = (*loaded.notices, *call.notices)
    return LoadedPermissions(permissions, notices)


class WordsRun(Struct):
    session: Session
    settings: Settings
    loaded: LoadedPermissions
    warn: Callable[[str], None]
    teammates: Collection[str]

    async def run(self, call: PromptCall | None, words: str, data: str, **options: Any) -> Report:
        """Run the prompt, or the prompt of the file or MCP server that it calls.

        `data` follows the words.
        """
        if call is None and words.startswith(f"/{SERVER_PREFIX}"):
            from .prompt_calls import fetch_filled

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


DATA_HINT = (
    "A prompt with data on stdin may only read. To let it change files and run commands: "
    "--permission-mode acceptEdits"
)


def run_print_mode(words: str | None, options: StartOptions, *, wait_for_stdin: bool) -> int:
    prompt = read_prompt(words, sys.stdin, wait=wait_for_stdin, warn=print_notice)
    return run_event_loop(run_one_shot(prompt, options, words=words or ""))


async def run_one_shot(prompt: str | None, options: StartOptions, *, words: str = "") -> int:
    """Run one prompt; None only finishes an interrupted run.

    `words` is its beginning, typed on the command line. The rest is another program's data.
    """
    settings = options.settings
    schema = None
    if settings.json_schema:
        from .parse_json_flags import load_json_schema

        schema = load_json_schema(settings.json_schema)
    # Data may contain a stranger's instructions: only mentions in the typed words count, and
    # without a permission mode nothing may be changed.
    has_data = bool(words) and prompt != words
    default_mode = Mode.DONT_ASK if has_data else Mode.DEFAULT
    programs = load_programs(settings, options.cwd)
    servers = list_server_names(programs)
    loaded = load_permissions(settings, options.cwd, default_mode=default_mode, servers=servers)
    call = find_call(words, settings, options.cwd, programs)
    loaded = add_rules(call, loaded)
    recorded: list[StoredEvent] = []
    session = create_session(settings, options.cwd, loaded, options.start, programs=programs)
    session.allows_offline = True
    session.watch_history(recorded.append)
    async with session:
        await name_session(session, settings.home, options.start)
        if notice := await delete_expired_sessions(settings):
            print_notice(notice)
        reporter = RunReporter(
            session,
            settings,
            mode=loaded.permissions.mode,
            verbose=options.verbose,
            quiet=options.quiet,
            as_json=schema is not None,
            denial_hint=DATA_HINT if has_data and not settings.permission_mode else "",
        )
        if not options.quiet:
            _print_what_continues(session, options.start, recorded, has_prompt=prompt is not None)
        reporter.add_past_events(recorded, session.unfinished_runs)
        teammates = list_names(RunTree.from_events(recorded)) if "@" in words else []
        # A long session's events are not needed while the prompt runs.
        recorded.clear()
        signals_handled = handle_signals(
            session.runs.cancel, session.pause, exits_after=True, must_end=True
        )
        with signals_handled as signals, reporter.screen, show_log(reporter.print_notice):
            try:
                report = await session.resume_unfinished()
                if prompt is not None and not signals:
                    run = WordsRun(session, settings, loaded, reporter.print_notice, teammates)
                    report = await run.run(call, words, prompt.removeprefix(words), outputs=schema)
            except SessionPaused:
                from ..output.report import make_paused_report  # rarely needed

                report = make_paused_report(session.id, reporter.screen.tree)
        return reporter.print_report(_require_report(report, session.id, signals), signals)


def _require_report(report: Report | None, session: str, signals: Sequence[int]) -> Report:
    """Return the report. Raises UsageError if there was nothing to do."""
    if report is None:
        raise UsageError("no run of this session was interrupted", where=session)
    if report.is_interrupted and not signals:
        raise UsageError(
            "the last prompt of this session is interrupted and waits for the next one",
            where=session,
            remedy="Give a prompt, which continues it.",
        )
    return report


def _print_what_continues(
    session: Session, start: SessionStart, events: Sequence[StoredEvent], *, has_prompt: bool
) -> None:
    if start.resume and has_prompt:
        print_notice(describe_continued(start, events))
    if session.unfinished_runs:
        print_notice("finishing the interrupted run first")
