"""Agent Skills: folders with a SKILL.md, or single files `skills/NAME.md`.

Only names and descriptions are kept; the text is loaded when needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from ..._core.json_values import JsonValue
from ..._platform.patterns import compile_later
from ..._projections.engine_text import wrap
from .frontmatter import Document, Entry, parse_document, read_line
from .locations import (
    SKILL_LOCATIONS,
    Location,
    PluginFolders,
    list_files,
    list_locations,
    make_part_name,
)
from .prompt_template import PromptTemplate, list_variables, load_template
from .safe_read import Diagnostic, FileDiagnostics, find_files, make_name_clash, read_text

# The limits up to MAX_COMPATIBILITY come from the Agent Skills specification.
NAME_PATTERN = compile_later(r"[a-z0-9]+(-[a-z0-9]+)*")
MAX_NAME = 64
MAX_DESCRIPTION = 1_024
MAX_COMPATIBILITY = 500
MAX_LISTED_FILES = 100  # files to list when a skill is loaded

_KEYS = (
    "name description license compatibility metadata allowed-tools when_to_use argument-hint "
    "arguments disable-model-invocation user-invocable disallowed-tools model effort context "
    "agent background hooks paths shell version"
)
_WITHOUT_EFFECT = "effort hooks paths shell disallowed-tools background"
_FOR_CALLS_OF_THE_USER = frozenset(["context", "agent", "model", "allowed-tools"])
_KNOWN_KEYS = frozenset(_KEYS.split())
_KEYS_WITHOUT_EFFECT = frozenset(_WITHOUT_EFFECT.split())
_PLACEHOLDER = compile_later(
    r"\$\{([A-Za-z_][\w.]*)\}|\$ARGUMENTS(?:\[(\d{1,2})\])?|\$(\d)(?![\d.,]*\d)"
)
_COMMAND = compile_later(r"!`[^`]+`")


class Skill(Struct, frozen=True):
    """A skill; for the last fields see `Location`."""

    name: str
    description: str
    path: str  # of its SKILL.md
    boundary: str = ""
    is_hidden: bool = False  # models do not see it
    is_personal: bool = False
    place: str = ""
    variables: Mapping[str, str] = {}

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)

    def list_files(self) -> list[str]:
        """List its other files, relative to its folder; past MAX_LISTED_FILES, add a remark."""
        if os.path.basename(self.path) != "SKILL.md":
            return []
        files = find_files(self.folder, "", [], boundary=self.boundary)
        paths = (os.path.relpath(path, self.folder) for path in files)
        others = [path for path in paths if path != "SKILL.md"]
        if len(others) > MAX_LISTED_FILES:
            others[MAX_LISTED_FILES:] = ["… and more files; list the folder to see them"]
        return others

    def load_template(self) -> PromptTemplate:
        return load_template(self.path, self.boundary, self.variables, is_command=False)

    def load_text(self, arguments: str = "") -> str:
        # Commands in the text are not run.
        diagnostics = FileDiagnostics(self.path)
        text = read_text(self.path, self.boundary, diagnostics)
        if text is None:
            return ""
        document = parse_document(text, diagnostics)
        words = arguments.split()
        has_arguments = False
        variables = list_variables(self.folder, self.variables)

        def fill(match: re.Match[str]) -> str:
            nonlocal has_arguments
            if match[1]:
                return variables.get(match[1], match[0])
            if not words and match[3]:
                return match[0]  # without arguments "$5" is an amount of money
            has_arguments = True
            number = match[2] or match[3]
            if number is None:
                return arguments
            return words[int(number)] if int(number) < len(words) else ""

        body = _PLACEHOLDER.sub(fill, document.body if document else text)
        if has_arguments or not arguments:
            return body
        return f"{body}\n\nARGUMENTS: {arguments}"


class LoadedSkills(Struct, frozen=True):
    by_name: dict[str, Skill]
    diagnostics: tuple[Diagnostic, ...]


def load_skills(
    folder: str,
    *,
    user_home: str,
    plugins: Iterable[PluginFolders] = (),
    trusts_folder: bool = True,
) -> LoadedSkills:
    skills: dict[str, Skill] = {}
    diagnostics: list[Diagnostic] = []
    locations = list_locations(
        SKILL_LOCATIONS, "skills", folder, user_home, plugins, trusts_folder=trusts_folder
    )
    for location in locations:
        for path in list_files(location, diagnostics):
            is_single_file = location.kind.suffix == ".md" and _is_single_file(path, location)
            if os.path.basename(path) != "SKILL.md" and not is_single_file:
                continue
            skill, remarks = load_skill(path, location.boundary)
            diagnostics += remarks
            if skill is None:
                continue
            skill = replace(
                skill,
                name=make_part_name(location, skill.name),
                is_personal=location.is_personal,
                place=location.place,
                variables=location.variables,
            )
            if skill.name in skills:
                diagnostics.append(make_name_clash(path, skills[skill.name].path, skill.name))
            else:
                skills[skill.name] = skill
    return LoadedSkills(skills, tuple(diagnostics))


def _is_single_file(path: str, location: Location) -> bool:
    return os.path.dirname(path) == location.folder and _derive_name(path).lower() != "readme"


def _derive_name(path: str) -> str:
    """Derive a skill's name from its path: its folder's, or a single file's."""
    folder, file = os.path.split(path)
    return os.path.basename(folder) if file == "SKILL.md" else os.path.splitext(file)[0]


def load_skill(path: str, boundary: str = "") -> tuple[Skill | None, list[Diagnostic]]:
    diagnostics = FileDiagnostics(path)
    text = read_text(path, boundary, diagnostics)
    document = parse_document(text, diagnostics) if text is not None else None
    if document is None:
        description = _find_first_line(text or "")[:MAX_DESCRIPTION]
        if not diagnostics.has_errors and not description:
            diagnostics.add_error(1, "the file is empty")
        if diagnostics.has_errors:
            return None, diagnostics.items
        if os.path.basename(path) == "SKILL.md":
            diagnostics.add_warning(1, "no frontmatter: the first line is used as description")
        return Skill(_derive_name(path), description, path, boundary), diagnostics.items
    skill = _read_skill(path, boundary, document, diagnostics)
    return (None if diagnostics.has_errors else skill), diagnostics.items


def _read_skill(
    path: str, boundary: str, document: Document, diagnostics: FileDiagnostics
) -> Skill:
    entries = document.entries
    _check_keys(entries, diagnostics)
    name = _read_name(path, entries, diagnostics)
    description, line = read_line(entries, "description", diagnostics)
    if not description:
        diagnostics.add_warning(line, "no description: the first line of the text is used")
        description = _find_first_line(document.body)
    if not description:
        diagnostics.add_error(line, "no description: a model cannot know when to use the skill")
    if len(description) > MAX_DESCRIPTION:
        diagnostics.add_warning(
            line,
            f"the description has {len(description):,} characters; "
            f"the first {MAX_DESCRIPTION:,} are used",
        )
    when_to_use, _ = read_line(entries, "when_to_use", diagnostics)
    if when_to_use:
        description = f"{description} {when_to_use}"
    if command := _COMMAND.search(document.body):
        line = document.body_line + document.body.count("\n", 0, command.start())
        diagnostics.add_note(line, "commands in a skill's text are run only when the user calls it")
    hidden = entries.get("disable-model-invocation")
    return Skill(
        " ".join(name.split())[:MAX_NAME],
        description[:MAX_DESCRIPTION],
        path,
        boundary,
        is_hidden=hidden is not None and hidden.value is True,
    )


def _read_name(path: str, entries: dict[str, Entry], diagnostics: FileDiagnostics) -> str:
    folder = _derive_name(path)
    name, line = read_line(entries, "name", diagnostics)
    if not name:
        diagnostics.add_warning(line, f"no name; its folder's name {folder!r} is used")
        return folder
    if not NAME_PATTERN.fullmatch(name) or len(name) > MAX_NAME:
        diagnostics.add_warning(
            line, f"name {name!r}: use up to {MAX_NAME} of a-z, 0-9 and single hyphens"
        )
    elif name != folder:
        diagnostics.add_warning(line, f"name {name!r} differs from its folder's, {folder!r}")
    return name


def _find_first_line(text: str) -> str:
    return text.strip().partition("\n")[0].strip("# ")


def _check_keys(entries: dict[str, Entry], diagnostics: FileDiagnostics) -> None:
    for key, entry in entries.items():
        if key not in _KNOWN_KEYS:
            diagnostics.add_warning(entry.line, f"unknown key {key!r}")
        elif key in _KEYS_WITHOUT_EFFECT:
            diagnostics.add_note(entry.line, f"{key!r} has no effect here")
        elif key in _FOR_CALLS_OF_THE_USER:
            diagnostics.add_note(entry.line, f"{key!r} counts only when the user calls the skill")
    compatibility = entries.get("compatibility")
    if compatibility and len(str(compatibility.value)) > MAX_COMPATIBILITY:
        diagnostics.add_warning(
            compatibility.line, f"compatibility: more than {MAX_COMPATIBILITY} characters"
        )
    metadata = entries.get("metadata")
    if metadata and not _is_text_map(metadata.value):
        diagnostics.add_warning(metadata.line, "metadata is not a map of texts")
    for key in ("license", "compatibility"):
        if key in entries and not isinstance(entries[key].value, str):
            diagnostics.add_warning(entries[key].line, f"{key} is not a text")


def _is_text_map(value: JsonValue) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def format_preloaded(skills: Iterable[Skill]) -> str:
    return "\n\n".join(
        wrap("skill", skill.load_text(), name=skill.name, folder=skill.folder) for skill in skills
    )
