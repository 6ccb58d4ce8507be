"""User prompts: mentions, attached files and images, prompts and resources of MCP servers."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from ..._adapters.tools._image_files import MAX_IMAGE_BYTES, parse_image
from ..._core.listings import count_noun, format_size
from ..._core.messages import ImageBlock, TextBlock, estimate_tokens
from ..._core.ports.servers import ServerPrompt
from ..._core.runs import Report
from ..._core.tool_names import SERVER_PREFIX
from ..._platform.patterns import compile_later
from ..._platform.regular_files import read_regular_file
from ..._projections.safe_text import sanitize_line
from ..._projections.team import normalize_name
from ..._session.config import Settings
from ...errors import MudroomError, UsageError, WorkspaceError, suggest_names
from ...permissions.rules import Verdict

if TYPE_CHECKING:
    from ..._session.session import Session


MENTION = compile_later(r"(?<![A-Za-z0-9_@/.])@([^\s,;!?()\"'`<>，。；：！？、“”‘’]+)")
_MESSAGE = compile_later(r"(@[^\s:.,，。：、]+)(?:[:.,]?\s+|[，。：、]\s*)(\S.*)", re.DOTALL)

# Optional prefix that tells an agent's name from a file.
AGENT_PREFIX = "agent-"


def find_mentions(prompt: str) -> list[str]:
    # A full stop or a colon belongs to the sentence.
    return [match[1].rstrip(".:") for match in MENTION.finditer(prompt)]


def split_message(line: str, teammates: Collection[str]) -> tuple[str, str]:
    """Split "@alice look" into name and text; ("", "") for a line not meant for a teammate."""
    match = _MESSAGE.fullmatch(line.strip())
    if match and (name := normalize_name(match[1])) in teammates:
        return name, match[2]
    return "", ""


def expand_mentions(
    prompt: str,
    *,
    folder: str,
    agents: Collection[str],
    teammates: Collection[str] = (),
    attached: Collection[str] = (),
) -> str:
    """Expand the mentions in a prompt for the model.

    A mentioned file becomes its path, unless it is attached. A mentioned agent or teammate adds an
    instruction at the end; teammates win over files and agents. Other mentions stay as they are.
    """
    mentioned: dict[str, None] = {}

    def expand(match: re.Match[str]) -> str:
        word = match[1].rstrip(".:")
        name = word.removeprefix(AGENT_PREFIX)
        if (teammate := normalize_name(word)) in teammates:
            mentioned[f"Send this to {teammate} with the send_message tool."] = None
            return match[0]
        if word in attached:
            return match[0]
        if os.path.lexists(os.path.join(folder, word)):
            return match[1]
        if name in agents:
            mentioned[f"Give this to the agent {name} with the task tool."] = None
        return match[0]

    text = MENTION.sub(expand, prompt)
    return "\n\n".join([text, *mentioned])


def describe_unknown_mentions(
    prompt: str, *, folder: str, agents: Collection[str], teammates: Collection[str]
) -> Iterator[str]:
    """Yield hints for unknown mentions that resemble a name or begin the prompt."""
    names = {*agents, *teammates}
    for word in dict.fromkeys(find_mentions(prompt)):
        name = normalize_name(word).removeprefix(AGENT_PREFIX)
        if name in names or os.path.lexists(os.path.join(folder, os.path.expanduser(word))):
            continue
        nearest = suggest_names(name, names)
        # Elsewhere, an unknown "@word" is probably plain text, such as a decorator.
        if nearest.startswith("Did you mean") or prompt.lstrip().startswith(f"@{word}"):
            yield f"@{word} is no agent, named child or file here. It is sent as text. {nearest}"


def begins_with_path(line: str) -> bool:
    """Return whether a line begins with a file's path, perhaps from a dropped file."""
    word = line.split()[0]
    # "/help" is a command, even where a file has this path.
    return word.count("/") > 1 and os.path.lexists(word)


# Bytes; the model reads parts of larger text files itself.
MAX_TEXT_BYTES = 100_000

# Tokens; larger inputs are announced before they are sent, because each request repeats them.
MANY_TOKENS = 50_000

# A word of a line, quoted or not. Visits each character a bounded number of times, because a line
# may be a single word of a million characters, as in Chinese.
_WORD = compile_later(r"""(?<!\S)"[^"]+"(?!\S)|(?<!\S)'[^']+'(?!\S)|(?:\\.|[^\s\\])+""")
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
# Linux's longest path; longer words need not be looked up.
_MAX_PATH = 4_096


class Attachments(Struct):
    text: str = ""
    words: list[str] = field(default_factory=list[str])
    images: list[ImageBlock] = field(default_factory=list[ImageBlock])
    notes: list[str] = field(default_factory=list[str])


def remove_attachments(prompt: str) -> str:
    return prompt.partition('\n\n<file path="')[0]


def load_attachments(
    session: Session,
    settings: Settings,
    line: str,
    *,
    without: Collection[str] = (),
    typed: str | None = None,
) -> Attachments:
    """Read the files a line mentions with "@", and the images whose paths it contains.

    `without` are mentions that name no file; `typed` is the part the user wrote, None for all.
    """
    attachments = Attachments()
    paths = [each for each in _find_paths(session.cwd, line) if each[0] not in without]
    if not paths:
        return attachments
    from ..._adapters.tools.read import READ  # slow to import, as are the next two
    from .load_permissions import load_permissions, make_policy

    permissions, _ = load_permissions(settings, session.cwd, can_ask=True)
    policy = make_policy(permissions, session.cwd)
    # Images outside the workspace are read only if the user names them: a stranger's file must not
    # send any.
    own = {path for _, path in (paths if typed is None else _find_paths(session.cwd, typed))}
    for word, path in paths:
        absolute = os.path.join(session.cwd, path)
        if os.path.isdir(absolute):
            continue
        verdicts = [
            policy.decide(READ, {"file_path": name}, permissions.mode)
            # Judged under both names: a link must not bypass a rule.
            for name in (absolute, os.path.realpath(absolute))
        ]
        denied = next((verdict for verdict in verdicts if verdict.verdict == Verdict.DENY), None)
        if denied:
            _add_note(attachments, path, f"not attached: {denied.why}")
        else:
            _attach(attachments, session, word, path, reads_outside=path in own)
    return attachments


def _find_paths(folder: str, line: str) -> Iterator[tuple[str, str]]:
    """Yield (mention or "", path) for existing files in a line, each path once."""
    seen: set[str] = set()
    for word in find_mentions(line):
        path = os.path.expanduser(word)
        if path not in seen and os.path.lexists(os.path.join(folder, path)):
            seen.add(path)
            yield word, path
    # Lines with line feeds are pasted; paths in them without "@" are not meant as files.
    if "\n" in line:
        return
    for path in list_image_paths(line):
        if path not in seen and os.path.isfile(os.path.join(folder, path)):
            seen.add(path)
            yield "", path


def list_image_paths(line: str) -> Iterator[str]:
    """Yield a line's words that are image paths, as a terminal inserts dropped files."""
    for match in _WORD.finditer(line):
        word = match[0]
        if len(word) > _MAX_PATH:
            continue
        if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'":
            word = word[1:-1]
        else:
            # Terminals escape blanks with a backslash.
            word = re.sub(r"\\(.)", r"\1", word)
        if word.lower().endswith(_IMAGE_SUFFIXES):
            yield os.path.expanduser(word)


def _attach(
    attachments: Attachments, session: Session, word: str, path: str, *, reads_outside: bool
) -> None:
    """Attach one file, or add a note that explains why only its path is sent."""
    try:
        data = _read(session, path, reads_outside=reads_outside)
    except (OSError, WorkspaceError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        _add_note(attachments, path, f"only the path is sent: {reason}")
        return
    image = parse_image(data) if len(data) <= MAX_IMAGE_BYTES else None
    if image:
        attachments.images.append(image)
        pixels = f"{image.width}x{image.height} pixels"
        _add_note(attachments, path, f"image attached, {pixels}, {format_size(len(data))}")
        return
    if not word:
        reason = f"not a complete image of at most {format_size(MAX_IMAGE_BYTES)}"
        _add_note(attachments, path, f"only the path is sent: {reason}")
        return
    if len(data) > MAX_TEXT_BYTES:
        reason = f"more than {format_size(MAX_TEXT_BYTES)}; the model reads parts of it"
        _add_note(attachments, path, f"only the path is sent: {reason}")
        return
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Treated like other binary files.
        text = "\0"
    if "\0" in text:
        _add_note(attachments, path, "only the path is sent: not text in UTF-8")
    else:
        from ..._adapters.output_filters import Redactor
        from ..._projections.engine_text import quote, wrap

        lines = count_noun(len(text.splitlines()), "line")
        attachments.words.append(word)
        content = Redactor(os.environ)(text).rstrip("\n")
        attachments.text += f"\n\n{wrap('file', quote(content), path=path)}"
        _add_note(attachments, path, f"attached, {lines}, {format_size(len(data))}")


def _read(session: Session, path: str, *, reads_outside: bool) -> bytes:
    """Read a workspace file; outside the workspace, only an image that the user names."""
    try:
        return session.workspace.read(path, 0, MAX_IMAGE_BYTES + 1)
    except WorkspaceError:
        if not reads_outside or not path.lower().endswith(_IMAGE_SUFFIXES):
            raise
        return read_regular_file(path, max_bytes=MAX_IMAGE_BYTES)


def _add_note(attachments: Attachments, path: str, text: str) -> None:
    attachments.notes.append(f"{sanitize_line(path)}: {text}")


# Characters; longer resources are cut.
MAX_RESOURCE = 100_000


async def fetch_prompt(session: Session, command: str, words: str) -> str | None:
    """Fetch the text of a slash command such as `/mcp__docs__summarize parsers`.

    Returns None if it names no server's prompt. A server whose prompts are not yet known is
    started. The words are the arguments in order; the last argument gets the rest of the line.

    Raises MudroomError if an argument is missing or the server cannot be used.
    """
    name = command.removeprefix("/")
    if not name.startswith(SERVER_PREFIX) or not session.mcp.servers:
        return None
    prompt = await session.mcp.find_prompt(name)
    return await session.mcp.get_prompt(name, _assign(prompt, words))


def _assign(prompt: ServerPrompt, words: str) -> dict[str, str]:
    """Assign the words to the prompt's arguments by name. Raises UsageError if one is missing."""
    names = prompt.arguments
    given = _split(words, len(names))
    missing = [name for name in names[len(given) :] if name in prompt.required]
    if missing or (words.strip() and not names):
        form = describe_arguments(prompt)
        problem = f"{missing[0]} is missing" if missing else "the prompt takes no arguments"
        raise UsageError(problem, where=prompt.name, remedy=f"Write: /{prompt.name} {form}".strip())
    return dict(zip(names, given, strict=False))


def describe_arguments(prompt: ServerPrompt) -> str:
    """Describe the arguments as the user writes them, such as `TOPIC [TONE]`."""
    return " ".join(
        name.upper() if name in prompt.required else f"[{name.upper()}]"
        for name in prompt.arguments
    )


def _split(words: str, count: int) -> Sequence[str]:
    """Split a line as a shell does; the last of `count` words gets the rest."""
    import shlex

    try:
        parts = shlex.split(words)
    except ValueError:  # an apostrophe
        parts = words.split()
    if len(parts) <= count:
        return parts
    return [*parts[: count - 1], " ".join(parts[count - 1 :])] if count else []


async def fetch_resources(session: Session, line: str, notes: list[str]) -> tuple[str, list[str]]:
    """Read the resources a line mentions as `@server:uri`, adding a note for each.

    Returns a single text for the model, and the mentions.
    """
    servers = {status.name for status in session.mcp.servers}
    parts: list[str] = []
    words: list[str] = []
    for word in dict.fromkeys(find_mentions(line)):
        server, colon, uri = word.partition(":")
        if not colon or not uri or server not in servers:
            continue
        try:
            text = await session.mcp.read_resource(server, uri)
        except MudroomError as error:
            notes.append(f"@{word}: not attached: {error}")
            continue
        words.append(word)
        cut = text[:MAX_RESOURCE]
        more = f"\n[… cut: {len(text):,} characters]" if len(text) > len(cut) else ""
        parts.append(f'\n\n<resource server="{server}" uri="{uri}">\n{cut}{more}\n</resource>')
        notes.append(f"@{word}: attached, {len(cut):,} characters")
    return "".join(parts), words


def list_prompts(session: Session) -> list[tuple[str, str]]:
    return [(f"/{prompt.name}", prompt.description) for prompt in session.mcp.prompts]


class PreparedPrompt(Struct):
    """A prompt as the model receives it.

    `text` includes instructions for mentioned agents; `files` holds the contents of files.
    """

    text: str
    files: str
    images: list[ImageBlock]
    notes: list[str]


async def prepare_prompt(
    session: Session,
    settings: Settings,
    line: str,
    *,
    teammates: Collection[str],
    typed: str | None = None,
) -> PreparedPrompt:
    """Expand a prompt's mentions and read its files."""
    agents = [agent.name for agent in session.agents]
    attachments = await asyncio.to_thread(
        load_attachments, session, settings, line, without=teammates, typed=typed
    )
    resources, mentioned = await fetch_resources(session, line, attachments.notes)
    text = expand_mentions(
        line,
        folder=session.cwd,
        agents=agents,
        teammates=teammates,
        attached=[*attachments.words, *mentioned],
    )
    hints = describe_unknown_mentions(line, folder=session.cwd, agents=agents, teammates=teammates)
    files = attachments.text + resources
    if (tokens := estimate_tokens(files)) >= MANY_TOKENS:
        attachments.notes.append(
            f"the attached files have about {tokens:,} tokens together, which each request sends"
        )
    return PreparedPrompt(text, files, attachments.images, [*attachments.notes, *hints])


async def run_prepared(
    session: Session,
    prompt: PreparedPrompt,
    data: str,
    warn: Callable[[str], None],
    **options: Any,
) -> Report:
    """Run a prompt followed by `data`. If the model takes no images, only their paths are sent."""
    for note in prompt.notes:
        warn(note)
    text = prompt.text + data + prompt.files
    if prompt.images:
        try:
            return await session.run([TextBlock(text), *prompt.images], **options)
        # Raised before anything is sent; the text contains the paths anyway.
        except UsageError as error:
            warn(f"The images are not sent, only their paths: {error}")
    return await session.run(text, **options)
