"""Options and events of a resumed or forked session, and where it is on disk."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from .._adapters.journals.sessions import stream_events
from .._adapters.models.pricing import calculate_cost
from .._adapters.tools import BOARD_TOOLS
from .._core.events import RunStarted, SessionOpened, StoredEvent, TurnStarted
from .._core.ports import Journal
from .._core.tool_names import parse_tool_patterns
from .._platform.open_beneath import find_real_path
from .._platform.paths import path_from_text
from .._projections.open_events import OpenEvents
from ..errors import JournalDamaged, UsageError
from ..permissions.rules import Permissions, Rule, Verdict
from . import config
from .conversation_state import select_finished
from .open_adapters import open_store
from .options import SessionOptions, change_options, list_places

# Options restored from other parts of the record, such as each prompt's brief, by flat name.
RESTORED_OTHERWISE = (
    "board",
    "cwd",
    "fallback_model",
    "model",
    "output_style",
    "prices",
    "prompt_budget",
)

# Options that only the new process can supply: objects, functions, programs, trust, secrets.
OF_PROCESS = (
    "approver",
    "environ",
    "fork",
    "home",
    "hook_programs",
    "hooks",
    "id",
    "journal",
    "mcp_servers",
    "origins",
    "plugins",
    "resume",
    "store",
    "tool_sources",
    "tools",
    "tracing",
    "trusted",
)

# All others, which the opening of a session records and a resume restores.
RESTORED = tuple(
    name
    for name in list_places(SessionOptions)
    if name not in RESTORED_OTHERWISE and name not in OF_PROCESS
)

# The origin of a rule from the command line is its flag.
_FLAG_PREFIX = "--"
ORIGIN = "the record of this session"
# Only a text can be recorded.
_MAY_BE_OBJECTS = ("sandbox", "worker")


def get_environ(options: SessionOptions) -> Mapping[str, str]:
    return os.environ if options.environ is None else options.environ


def find_home(options: SessionOptions) -> str:
    if options.home:
        return os.path.abspath(options.home)
    return config.find_home(get_environ(options))


def find_folder(options: SessionOptions) -> str:
    if not isinstance(options.cwd, str):
        return options.cwd.root
    folder = find_real_path(options.cwd)
    if not os.path.isdir(folder):
        raise UsageError(
            "no such directory", where=options.cwd, remedy="Name a folder that exists."
        )
    return folder


async def use_recorded_options(
    options: SessionOptions, *, drops_tasks: bool, chosen: Collection[str]
) -> tuple[SessionOptions, OpenEvents]:
    """Return the options the session to resume was started with, and its events.

    Raises UnknownName if there is no such session, JournalDamaged if its start is missing.
    """
    recorded = OpenEvents(calculate_cost, drops_tasks=drops_tasks)
    session = await _read_recorded(options, recorded)
    events = recorded.events
    openings = [event for event in events if isinstance(event, SessionOpened)]
    if not openings:
        raise JournalDamaged(
            "the record does not start with a session",
            where=session or options.resume or "",
            remedy="Start a new session.",
        )
    options = _choose_folder(options, openings[-1], chosen)
    options = restore_options(options, openings, chosen)
    briefs = [
        event.brief for event in events if type(event) is RunStarted and event.brief.depth == 0
    ]
    # A model for a single prompt is not the session's.
    of_session = [brief for brief in briefs if not brief.has_own_model]
    reuses_model = options.model == "auto" and of_session
    style = _choose_style(options, events)
    known = {
        # A fork's record begins with that of its original, which has another id.
        "id": options.id if options.fork else session or openings[-1].session,
        "resume": session or openings[-1].session,
        "model": of_session[-1].model if reuses_model else options.model,
        "board": options.children.board or is_board_offered([*events, *recorded.starts.values()]),
        "prices": options.model_options.prices
        or any(brief.budget.usd is not None for brief in briefs),
    }
    return change_options(options, {**known, **style}), recorded


def _choose_folder(
    options: SessionOptions, opened: SessionOpened, chosen: Collection[str]
) -> SessionOptions:
    """Use the record's last folder, unless `cwd` is given now because the project has moved."""
    if not isinstance(options.cwd, str) or ("cwd" in chosen and options.cwd):
        return options
    folder = path_from_text(opened.cwd)
    if not os.path.isdir(folder):
        raise UsageError(
            "the folder of this session does not exist",
            where=folder,
            remedy="If it was moved, pass the new folder as cwd.",
        )
    return replace(options, cwd=folder)


def find_former_folders(events: Iterable[StoredEvent], folder: str) -> dict[str, str]:
    """Map runs that last worked in another folder to that folder.

    Their models have not been told yet where the project is now: their conversations have paths in
    the old folder.
    """
    former_folders: dict[str, str] = {}
    opened_in = folder
    for event in events:
        if type(event) is SessionOpened:
            opened_in = path_from_text(event.cwd) or folder
        elif opened_in != folder:
            if event.run:
                former_folders[event.run] = opened_in
        elif type(event) is RunStarted and event.brief.continues in former_folders:
            former_folders[event.run] = former_folders[event.brief.continues]
        elif type(event) is TurnStarted:
            # After a turn in the current folder, the model knows.
            former_folders.pop(event.run, None)
    return former_folders


def describe_move(events: Sequence[StoredEvent], folder: str) -> str:
    """Return a notice if a session works in a different folder than before, else ""."""
    opened = [event for event in events if type(event) is SessionOpened]
    folder_before = path_from_text(opened[-1].cwd) if opened else ""
    if folder_before in ("", folder):
        return ""
    return f"this session goes on in {folder}; before, it worked in {folder_before}"


def _choose_style(options: SessionOptions, events: Sequence[StoredEvent]) -> dict[str, Any]:
    """Choose the output style; a resumed session keeps its last one."""
    opened = [event for event in events if type(event) is SessionOpened and event.output_style]
    origins = options.integrations.origins
    is_chosen_now = options.integrations.output_style and not origins.get("output_style")
    if is_chosen_now or not opened:
        return {}
    origins = {**origins, "output_style": ORIGIN}
    return {"output_style": opened[-1].output_style, "origins": origins}


def describe_other_board(events: Sequence[StoredEvent], board: str) -> str:
    """Return a notice if a session used a different task board before, else ""."""
    recorded = _find_board(events)
    if not board or recorded in ("", board):
        return ""
    return (
        f"this session uses the task board {board} now, and used {recorded} before: "
        "its folder belongs to another project (a git repository, or a folder without git)"
    )


def is_board_offered(events: Sequence[StoredEvent]) -> bool:
    """Return whether all runs of a session were offered the tools for the task board."""
    starts = (event.brief for event in events if type(event) is RunStarted)
    selections = {(brief.agent.tools, brief.tools) for brief in starts}
    return bool(_find_board(events)) or any(_has_offered_board(*each) for each in selections)


def _find_board(events: Sequence[StoredEvent]) -> str:
    """Find the file name of the last task board offered to all runs, "" for none."""
    boards = [each.board for each in events if type(each) is SessionOpened and each.board]
    return boards[-1] if boards else ""


def _has_offered_board(agent_tools: tuple[str, ...] | None, tools: tuple[str, ...]) -> bool:
    """Return whether a run has board tools that its agent does not name."""
    named = {pattern.tool for pattern in parse_tool_patterns(agent_tools)}
    return any(tool in BOARD_TOOLS and tool not in named for tool in tools)


async def copy_journal(
    options: SessionOptions, recorded: OpenEvents, journal: Journal
) -> OpenEvents:
    # While another process is writing the original, this one must not finish its runs.
    events = recorded.events
    if await open_store(options.store, find_home(options)).find_writer(options.resume or ""):
        events = select_finished(events)
    await journal.append(*events)
    copied = OpenEvents(calculate_cost, drops_tasks=False)
    copied.extend(events)
    return copied


async def _read_recorded(options: SessionOptions, recorded: OpenEvents) -> str:
    """Read the events of the session to resume; return its id in the store.

    Returns "" for the caller's own journal, which has only one session.
    """
    if options.journal == "memory" and not options.fork:
        raise UsageError(
            'a session in memory cannot be resumed with journal="memory"',
            remedy="Pass the Journal object again, or a store=MemoryStore().",
        )
    if not isinstance(options.journal, str) and not options.fork:
        async for event in options.journal.read():
            recorded.apply(event)
        return ""
    store = open_store(options.store, find_home(options))
    session = await store.find(options.resume or "")
    async for event in stream_events(store, session):
        recorded.apply(event)
    return session


def list_rights(options: SessionOptions) -> tuple[str, ...]:
    """List, for the record, the rights that the caller granted beyond the sandbox."""
    grants = ["network"] if options.allow_net else []
    grants.extend(str(rule) for rule in options.permissions.rules if rule.verdict is Verdict.ALLOW)
    return tuple(grants)


def encode_options(options: SessionOptions) -> dict[str, Any]:
    recorded: dict[str, Any] = {}
    places = list_places(SessionOptions)
    for name in RESTORED:
        value = places[name].read(options)
        if value == places[name].field.default:
            continue
        if name == "permissions" and not (value := _select_own_rules(value)):
            continue
        if name in _MAY_BE_OBJECTS and not isinstance(value, str):
            continue
        recorded[name] = msgspec.to_builtins(value)
    return recorded


def _select_own_rules(permissions: Permissions) -> list[Rule]:
    """Select the rules from flags and from the caller."""
    # A resume reads files again, with the rules they have by then.
    return [
        rule
        for rule in permissions.rules
        if not rule.is_approved and (not rule.origin or rule.origin.startswith(_FLAG_PREFIX))
    ]


def restore_options(
    options: SessionOptions, openings: Sequence[SessionOpened], chosen: Collection[str]
) -> SessionOptions:
    """Add the options from the resumed session's record, except the chosen ones."""
    recorded = [opened.options for opened in openings if opened.options is not None]
    if not recorded:  # by a version that recorded only these two
        isolation = options.isolation
        recorded_fields = {
            "isolate": isolation.each_child or openings[0].isolate,
            "check": isolation.check or openings[0].check,
        }
        return change_options(options, recorded_fields)
    last = recorded[-1]
    changes = {name: _decode(name, last) for name in RESTORED if name not in chosen}
    old_folder = path_from_text(openings[-1].cwd)
    rules = [
        _rebase(rule, old_folder, find_folder(options)) for rule in changes.pop("permissions", ())
    ]
    if agents := [*_decode("agents", last), *options.agents]:
        # An agent given now replaces the recorded one of the same name.
        changes["agents"] = list({agent.name: agent for agent in agents}.values())
    for name in _MAY_BE_OBJECTS:
        if not isinstance(getattr(options, name), str):
            changes.pop(name, None)  # an object is given now
    if "child_model" in changes:
        changes["origins"] = {**options.integrations.origins, "child_model": ORIGIN}
    new = [rule for rule in rules if rule not in options.permissions.rules]
    permissions = replace(
        options.permissions,
        rules=(*options.permissions.rules, *new),
        denies_unlisted=options.permissions.denies_unlisted
        or any(rule.verdict == "allow" for rule in new),
    )
    return change_options(options, {**changes, "permissions": permissions})


def _rebase(rule: Rule, old_folder: str, new_folder: str) -> Rule:
    return replace(rule, base=new_folder) if old_folder and rule.base == old_folder else rule


def _decode(name: str, recorded: Mapping[str, Any]) -> Any:  # noqa: ANN401  of the option
    if name == "permissions":
        return msgspec.convert(recorded.get(name, ()), tuple[Rule, ...])
    option = list_places(SessionOptions)[name].field
    if name not in recorded:
        return option.default
    if name in _MAY_BE_OBJECTS:
        return str(recorded[name])
    return msgspec.convert(recorded[name], option.type)


def describe_restored(options: SessionOptions) -> str:
    """Return a notice about the rights a resumed session has again, "" if none."""
    rights = ["--sandbox off"] if options.sandbox == "off" else []
    rights += ["--allow-net"] if options.allow_net else []
    if not rights:
        return ""
    return f"as when this session was started: {' '.join(rights)}"
