"""Mentions in a prompt: `@file`, `@agent` and `@teammate`, and what they mean."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator

from ...._platform.patterns import compile_later
from ...._projections.team import normalize_name
from ....errors import suggest_names

MENTION = compile_later(r"(?<![A-Za-z0-9_@/.])@([^\s,;!?()\"'`<>，。；：！？、“”‘’]+)")
_MESSAGE = compile_later(r"(@[^\s:.,，。：、]+)(?:[:.,]?\s+|[，。：、]\s*)(\S.*)", re.DOTALL)

# Optional prefix of an agent's name, to tell it from a file.
AGENT_PREFIX = "agent-"


def find_mentions(prompt: str) -> list[str]:
    """Return the mentions of a prompt without their "@"."""
    # A full stop or a colon belongs to the sentence.
    return [match[1].rstrip(".:") for match in MENTION.finditer(prompt)]


def split_message(line: str, teammates: Collection[str]) -> tuple[str, str]:
    """Split a line such as "@alice look" into name and text; ("", "") for other lines.

    Arguments:
        teammates: names that begin a message.
    """
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
    """Return the prompt for the model.

    A mentioned file becomes its path. A mentioned agent or teammate adds an instruction at the end.
    Any other mention stays as it is.

    Arguments:
        folder: base of relative paths.
        agents: names of the known agents.
        teammates: names of the named children, which win over files and agents.
        attached: files whose contents are sent, too; their mentions stay as they are.
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
    """Yield a hint for each mention that means nothing but resembles a name or begins the prompt.

    Arguments: see `expand_mentions`.
    """
    names = {*agents, *teammates}
    for word in dict.fromkeys(find_mentions(prompt)):
        name = normalize_name(word).removeprefix(AGENT_PREFIX)
        if name in names or os.path.lexists(os.path.join(folder, os.path.expanduser(word))):
            continue
        nearest = suggest_names(name, names)
        # Elsewhere in the prompt, an unknown "@word" is likely meant as text, such as a decorator.
        if nearest.startswith("Did you mean") or prompt.lstrip().startswith(f"@{word}"):
            yield f"@{word} is no agent, named child or file here. It is sent as text. {nearest}"


def begins_with_path(line: str) -> bool:
    """Return whether a line begins with a file's path, for example of a file dropped there."""
    word = line.split()[0]
    # "/help" is a command, even where a file has this path.
    return word.count("/") > 1 and os.path.lexists(word)
