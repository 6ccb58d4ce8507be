"""Agent Skills: folders with a SKILL.md. Name and description are read at once, the body when it is asked for, other files on demand."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, cast

from msgspec import Struct

from .diagnostics import Diagnostic, FileDiagnostics
from .frontmatter import Document, Entry, parse_document
from .locations import SKILL_LOCATIONS, find_locations
from .safe_read import find_files, read_text

NAME_PATTERN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""A skill's name as the specification wants it, at most 64 characters."""
MAX_DESCRIPTION = 1_024
"""Characters of a description."""
MAX_COMPATIBILITY = 500
"""Characters of a compatibility note."""
MAX_LISTED_FILES = 100
"""Files of a skill that are named when it is loaded."""

_SPECIFIED = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
_MORE = (
    "when_to_use argument-hint arguments disable-model-invocation user-invocable disallowed-tools model effort context agent "
    "background hooks paths shell version"
)
_CLAUDES = set(_MORE.split())
_PLACE = re.compile(
    r"\$\{(?:CLAUDE_)?SKILL_DIR\}|\$ARGUMENTS(?:\[(\d{1,2})\])?|\$(\d)(?![\d.,]*\d)"
)
_COMMAND = re.compile(r"!`[^`]+`")


class Skill(Struct, frozen=True):
    """One skill.

    Arguments:
        name: what it is called by. description: when to use it. path: of its SKILL.md, absolute. within: see `files.text_of`.
        hidden: a model is not told of it.
    """

    name: str
    description: str
    path: str
    within: str = ""
    is_hidden: bool = False

    @property
    def folder(self) -> str:
        """Absolute path of its folder."""
        return os.path.dirname(self.path)

    def list_files(self) -> list[str]:
        """Its other files, relative to its folder, at most LISTED."""
        found = (os.path.relpath(path, self.folder) for path in find_files(self.folder, ""))
        return [path for path in found if path != "SKILL.md"][:MAX_LISTED_FILES]

    def load_text(self, arguments: str = "") -> str:
        """The body, its places for the folder and the arguments filled in once; no command in it is run. "" if it has gone."""
        notes = FileDiagnostics(self.path)
        text = read_text(self.path, self.within, notes)
        read = parse_document(text, notes) if text is not None else None
        if read is None:
            return ""
        words, used = arguments.split(), list[str]()

        def fill(place: re.Match[str]) -> str:
            if place[0].startswith("${"):
                return self.folder
            if not words and place[2]:
                return place[0]  # a sum of money, more likely than an argument nobody gave
            used.append(place[0])
            index = place[1] or place[2]
            return (
                arguments if index is None else words[int(index)] if int(index) < len(words) else ""
            )

        body = _PLACE.sub(fill, read.body)
        return body if used or not arguments else f"{body}\n\nARGUMENTS: {arguments}"


class LoadedSkills(Struct, frozen=True):
    """The skills by name, and what was found wrong with their files."""

    by_name: dict[str, Skill]
    diagnostics: tuple[Diagnostic, ...]


def load_skills(folder: str, *, home: str) -> LoadedSkills:
    """The skills of a project's folder and of a person.

    Arguments:
        folder: of the project. home: the person's; "" leaves it out.
    """
    found: dict[str, Skill] = {}
    findings: list[Diagnostic] = []
    for place in find_locations(SKILL_LOCATIONS, folder, home):
        for path in find_files(place.folder, "SKILL.md"):
            if os.path.basename(path) != "SKILL.md":
                continue
            skill, remarks = load_skill(path, place.within)
            findings += remarks
            if skill is None:
                continue
            if skill.name in found:
                findings.append(_clash(path, found[skill.name]))
            else:
                found[skill.name] = skill
    return LoadedSkills(found, tuple(findings))


def load_skill(path: str, within: str = "") -> tuple[Skill | None, list[Diagnostic]]:
    """The skill in a SKILL.md, None if it cannot be used, and what there is to say about it."""
    notes = FileDiagnostics(path)
    text = read_text(path, within, notes)
    read = parse_document(text, notes) if text is not None else None
    if read is None:
        if not notes.has_errors:
            notes.add_error(1, "no head: the file must begin with --- and name and description")
        return None, notes.items
    skill = _checked(path, within, read, notes)
    return (None if notes.has_errors else skill), notes.items


def _checked(path: str, within: str, read: Document, notes: FileDiagnostics) -> Skill:
    entries = read.entries
    _check_keys(entries, notes)
    folder = os.path.basename(os.path.dirname(path))
    name, line = _text(entries, "name", notes)
    if not name:
        name = folder
        notes.add_warning(line, f"no name; it is called {name!r}, like its folder")
    elif not NAME_PATTERN.fullmatch(name) or len(name) > 64:
        notes.add_warning(line, f"name {name!r}: up to 64 of a-z, 0-9 and single hyphens are meant")
    elif name != folder:
        notes.add_warning(line, f"name {name!r} is not that of its folder, {folder!r}")
    description, line = _text(entries, "description", notes)
    if not description:
        notes.add_error(line, "no description: nobody would know when to use it")
    if len(description) > MAX_DESCRIPTION:
        notes.add_warning(
            line, f"a description of {len(description):,} characters; {MAX_DESCRIPTION:,} are used"
        )
    if more := _text(entries, "when_to_use", notes)[0]:
        description = f"{description} {more}"
    if found := _COMMAND.search(read.body):
        notes.add_note(
            read.body_line + read.body.count("\n", 0, found.start()),
            "commands in a skill's text are not run",
        )
    return Skill(
        " ".join(name.split())[:64],
        description[:MAX_DESCRIPTION],
        path,
        within,
        _on(entries, "disable-model-invocation"),
    )


def _check_keys(entries: dict[str, Entry], notes: FileDiagnostics) -> None:
    for key, entry in entries.items():
        if key not in _SPECIFIED | _CLAUDES:
            notes.add_warning(entry.line, f"unknown key {key!r}")
        elif key in (
            "context",
            "agent",
            "model",
            "effort",
            "hooks",
            "paths",
            "shell",
            "allowed-tools",
            "disallowed-tools",
        ):
            notes.add_note(entry.line, f"{key!r} has no effect here")
    compatibility = entries.get("compatibility")
    if compatibility and len(str(compatibility.value)) > MAX_COMPATIBILITY:
        notes.add_warning(
            compatibility.line, f"compatibility: more than {MAX_COMPATIBILITY} characters"
        )
    metadata = entries.get("metadata")
    if metadata and not _is_map_of_texts(metadata.value):
        notes.add_warning(metadata.line, "metadata is no map of texts")
    for key in ("license", "compatibility", "allowed-tools"):
        if key in entries and not isinstance(entries[key].value, str):
            notes.add_warning(entries[key].line, f"{key} is no text")


def _is_map_of_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(text, str) for text in cast("dict[str, Any]", value).values()
    )


def _text(entries: dict[str, Entry], key: str, notes: FileDiagnostics) -> tuple[str, int]:
    entry = entries.get(key)
    if entry is None:
        return "", 1
    if not isinstance(entry.value, str):
        notes.add_warning(entry.line, f"{key} is no text")
        return "", entry.line
    return " ".join(entry.value.split()), entry.line


def _on(entries: dict[str, Entry], key: str) -> bool:
    return key in entries and entries[key].value is True


def _clash(path: str, first: Skill) -> Diagnostic:
    notes = FileDiagnostics(path)
    notes.add_warning(
        1, f"not used: {first.path} is called {first.name!r}, too, and goes before it"
    )
    return notes.items[0]


def format_preloaded(skills: Iterable[Skill]) -> str:
    """The bodies of skills, to be read from the start."""
    return "\n\n".join(
        f'<skill name="{skill.name}" folder="{skill.folder}">\n{skill.load_text()}\n</skill>'
        for skill in skills
    )
