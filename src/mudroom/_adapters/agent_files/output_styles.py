"""Output styles: Markdown files that tell the root agent how to answer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from ..._core.agents import Agent
from ..._core.json_values import clean_text
from . import load_builtin_agent
from .fields import fold_name
from .frontmatter import Document, Entry, parse_document, read_line
from .locations import (
    STYLE_LOCATIONS,
    Location,
    PluginFolders,
    list_files,
    list_locations,
    make_part_name,
)
from .prompt_template import fill_variables
from .safe_read import Diagnostic, FileDiagnostics, make_name_clash, read_text

NO_STYLE = "default"  # the name for no output style
STYLE_FOLDER = "output-styles"
# Each request of the root agent contains the whole style.
MAX_CHARACTERS = 100_000

_KEYS = ("name", "description", "keep-coding-instructions", "force-for-plugin")


class OutputStyle(Struct, frozen=True):
    """An output style; the root agent gets its text."""

    name: str
    description: str
    text: str
    path: str
    keeps_instructions: bool = False  # the built-in agent keeps its own sentence about answers
    is_personal: bool = False  # false if it belongs to the project


class LoadedStyles(Struct, frozen=True):
    """The usable output styles by name, and the diagnostics of their files."""

    by_name: dict[str, OutputStyle]
    diagnostics: tuple[Diagnostic, ...]
    untrusted: Mapping[str, OutputStyle] = {}  # not used

    def explain_untrusted(self, name: str) -> str:
        """Explain how to use a style left out for lack of trust; "" for other names."""
        style = find_style(self.untrusted, name)
        if style is None:
            return ""
        return (
            f"{style.path} has a style of this name, but you have not trusted its folder. "
            "Read the file, then: mudroom trust add, or --trust for one run."
        )


def load_output_styles(
    folder: str,
    *,
    user_home: str,
    plugins: Iterable[PluginFolders] = (),
    trusts_folder: bool = True,
) -> LoadedStyles:
    """Load the usable styles; among those with the same name, the nearest is used."""
    styles: dict[str, OutputStyle] = {}
    untrusted: dict[str, OutputStyle] = {}
    first_paths: dict[str, str] = {}
    diagnostics: list[Diagnostic] = []
    locations = list_locations(
        STYLE_LOCATIONS, "output_styles", folder, user_home, plugins, trusts_folder=trusts_folder
    )
    for location in locations:
        for path in list_files(location, diagnostics):
            style, remarks = load_output_style(path, location)
            diagnostics += remarks
            if style is None:
                continue
            # A style becomes part of the instructions of the agent the user talks with.
            if not (trusts_folder or location.is_personal):
                untrusted.setdefault(style.name, style)
                continue
            first = first_paths.setdefault(fold_name(style.name), path)
            if first == path:
                styles[style.name] = style
            else:
                diagnostics.append(make_name_clash(path, first, style.name))
    return LoadedStyles(styles, tuple(diagnostics), untrusted)


def load_output_style(
    path: str, location: Location | None = None
) -> tuple[OutputStyle | None, list[Diagnostic]]:
    """Load one style file, which need not be in a location; the style is None if unusable."""
    location = location or Location(STYLE_LOCATIONS[0], os.path.dirname(path), "", False)
    diagnostics = FileDiagnostics(path)
    text = read_text(path, location.boundary, diagnostics)
    document = parse_document(text, diagnostics) if text is not None else None
    if document is None:
        document = Document({}, (text or "").strip(), 1)
    if diagnostics.has_errors:
        return None, diagnostics.items
    style = _read_style(document, location, diagnostics)
    return (None if diagnostics.has_errors else style), diagnostics.items


def _read_style(
    document: Document, location: Location, diagnostics: FileDiagnostics
) -> OutputStyle:
    entries, body = document.entries, document.body
    for key, entry in entries.items():
        if key not in _KEYS:
            diagnostics.add_warning(entry.line, f"unknown key {key!r}")
    if force := entries.get("force-for-plugin"):
        text = "'force-for-plugin' has no effect here: the setting output_style chooses a style"
        diagnostics.add_note(force.line, text)
    if not body:
        diagnostics.add_error(document.body_line, "the style has no text")
    if len(body) > MAX_CHARACTERS:
        problem = f"the style has {len(body):,} characters; {MAX_CHARACTERS:,} are the limit"
        diagnostics.add_error(document.body_line, problem)
    name, line = read_line(entries, "name", diagnostics)
    name = name or os.path.splitext(os.path.basename(diagnostics.path))[0]
    name = clean_text(name)  # it is recorded
    if fold_name(name) == NO_STYLE:
        diagnostics.add_error(line, f"the name {name!r} means no style; choose another one")
    description, _ = read_line(entries, "description", diagnostics)
    return OutputStyle(
        name=make_part_name(location, name),
        description=description or body.partition("\n")[0].strip("# "),
        text=fill_variables(body, location.variables),
        path=diagnostics.path,
        keeps_instructions=_read_choice(entries, "keep-coding-instructions", diagnostics),
        is_personal=location.is_personal,
    )


def _read_choice(entries: Mapping[str, Entry], key: str, diagnostics: FileDiagnostics) -> bool:
    entry = entries.get(key)
    if entry is None or isinstance(entry.value, bool):
        return entry is not None and entry.value is True
    diagnostics.add_warning(entry.line, f"{key} is neither true nor false; false is used")
    return False


def find_style(styles: Mapping[str, OutputStyle], name: str) -> OutputStyle | None:
    """Find a style, ignoring case, separators and its plugin's name; None unless it is unique."""
    if name in styles:
        return styles[name]
    wanted = fold_name(name)
    for own_name in (fold_name, _fold_own_name):
        matching = [style for key, style in styles.items() if own_name(key) == wanted]
        if matching:
            return matching[0] if len(matching) == 1 else None
    return None


def _fold_own_name(name: str) -> str:
    return fold_name(name.rpartition(":")[2])


def apply_style(agent: Agent, style: OutputStyle) -> Agent:
    instructions = agent.instructions
    if not style.keeps_instructions:
        # The last line of the built-in agent's instructions says how to answer; the style replaces
        # it. All other instructions stay.
        about_answers = load_builtin_agent("main").instructions.rpartition("\n")[2]
        instructions = instructions.replace(about_answers, "").strip()
    text = f"# Output style: {style.name}\n{style.text}"
    return replace(agent, instructions=f"{instructions}\n\n{text}".strip())
