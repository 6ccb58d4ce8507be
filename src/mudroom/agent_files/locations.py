"""Where agent files and skills lie, in the order of precedence: nearest folder of the project first, the person's home last."""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct


class LocationKind(Struct, frozen=True):
    """One tool's way to keep agents.

    Arguments:
        dialect: whose it is. folder: below a project's folder or the home. suffix: of the files. deep: whether in sub-folders, too.
        person: folder below the home, where it is another one.
    """

    dialect: str
    folder: str
    suffix: str = ".md"
    is_recursive: bool = False
    user_folder: str = ""


AGENT_LOCATIONS = (
    LocationKind("agents", ".agents/agents"),
    LocationKind("claude", ".claude/agents", is_recursive=True),
    LocationKind("gemini", ".gemini/agents"),
    LocationKind("opencode", ".opencode/agents", user_folder=".config/opencode/agents"),
    LocationKind("opencode", ".opencode/agent", user_folder=".config/opencode/agent"),
    LocationKind("codex", ".codex/agents", ".toml"),
    LocationKind("qwen", ".qwen/agents"),
    LocationKind("goose", ".goose/agents"),
)
SKILL_LOCATIONS = (
    LocationKind("agents", ".agents/skills", "SKILL.md", is_recursive=True),
    LocationKind("claude", ".claude/skills", "SKILL.md", is_recursive=True),
)


class Location(Struct, frozen=True):
    """A folder that is there.

    Arguments:
        kind: whose files it holds. folder: absolute. within: real path its files must lie beneath, "" for anywhere.
        personal: it is in the person's home, not in the project.
    """

    kind: LocationKind
    folder: str
    within: str
    is_personal: bool


def project_folders(folder: str) -> list[str]:
    """Real paths from `folder` up to the root of its git repository; the folder alone where there is none."""
    here = os.path.realpath(folder)
    found, at = [here], here
    while not os.path.exists(os.path.join(at, ".git")):
        above = os.path.dirname(at)
        if above == at:
            return [here]
        found.append(at := above)
    return found


def find_locations(kinds: tuple[LocationKind, ...], folder: str, home: str) -> Iterator[Location]:
    """The folders that are there, the one with most say first, each once.

    Arguments:
        folder: of the project. home: the person's; "" leaves it out.
    """
    project, seen = project_folders(folder), set[str]()
    person = [(home, "", True)] if home else []
    for top, within, personal in [*((at, project[-1], False) for at in project), *person]:
        for kind in kinds:
            path = os.path.join(top, kind.user_folder or kind.folder if personal else kind.folder)
            real = os.path.realpath(path)
            if (
                real in seen
                or not os.path.isdir(path)
                or (within and not (real + "/").startswith(within.rstrip("/") + "/"))
            ):
                continue
            seen.add(real)
            yield Location(kind, path, within, personal)
