"""Prompts and resources of MCP servers in a line of the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...._core.ports.servers import ServerPrompt
from ...._core.tool_names import SERVER_PREFIX
from ....errors import MudroomError, UsageError
from .mentions import find_mentions

if TYPE_CHECKING:
    from ...._session.session import Session
    from .prompt_calls import FilledPrompt

# Characters of a resource that are sent.
MAX_RESOURCE = 100_000
_MARK = "\x020\x03"


async def fetch_filled(session: Session, line: str) -> FilledPrompt:
    """Return the server's prompt that a line calls. Raises MudroomError if there is none."""
    name, _, words = line.partition(" ")
    fetched = await fetch_prompt(session, name, words.strip())
    if fetched is None:
        raise UsageError(
            f"{name}: the session has no MCP server", remedy="See which ones are used: mudroom mcp"
        )
    return make_filled(fetched)


def make_filled(text: str) -> FilledPrompt:
    """Make a server's text a prompt, in which mentions mean nothing."""
    # As if it were a command's output, which is put in after mentions are expanded.
    from .prompt_calls import FilledPrompt

    return FilledPrompt(_MARK, outputs={_MARK: text})


async def fetch_prompt(session: Session, command: str, words: str) -> str | None:
    """Return the text of a slash command such as `/mcp__docs__summarize parsers`.

    Returns None if it names no prompt of a server. A server whose prompts are not known yet is
    started. The words are the arguments in order; the last argument gets the rest of the line.

    Raises MudroomError if an argument is missing, or the server cannot be used.
    """
    name = command.removeprefix("/")
    if not name.startswith(SERVER_PREFIX) or not session.mcp_servers:
        return None
    prompt = await session.find_mcp_prompt(name)
    return await session.get_mcp_prompt(name, _assign(prompt, words))


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
    """Return the arguments of a prompt as the user writes them, such as `TOPIC [TONE]`."""
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
    """Read the resources that a line mentions as `@server:uri`.

    Returns one text for the model, and the mentions.

    Arguments:
        notes: a line is added for each resource.
    """
    servers = {status.name for status in session.mcp_servers}
    parts: list[str] = []
    words: list[str] = []
    for word in dict.fromkeys(find_mentions(line)):
        server, colon, uri = word.partition(":")
        if not colon or not uri or server not in servers:
            continue
        try:
            text = await session.read_mcp_resource(server, uri)
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
    """List the slash commands of the known prompts with their descriptions."""
    return [(f"/{prompt.name}", prompt.description) for prompt in session.mcp_prompts]
