"""Requests "tests", "stack" and "packages": files and lines that belong to technologies."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import cast

from msgspec import Struct, field

from .catalog import ManifestFormat, Technology, load_data, load_pattern, load_rows, matches_any
from .files import format_block, format_table, grep_all, list_files, parse_listing, read_files
from .plans import Context, Plan, Request, Steps, Translator, combine, plan_call

_NAME = re.compile(r"\s*([A-Za-z@][\w./@-]*)(?![\w.-]*[:+])")


class Dependency(Struct, frozen=True):
    """An entry of a manifest, as it is written there."""

    name: str
    text: str  # a requirement, a name with its value, or a line
    section: str  # name of a section, or number of a line


class Manifest(Struct):
    """What one manifest declares."""

    path: str
    rules: ManifestFormat
    dependencies: list[Dependency] = field(default_factory=list[Dependency])
    sections: list[str] = field(default_factory=list[str])  # the sections that were read
    tools: str = ""  # names of configured tools, and test commands


def find_format(path: str) -> ManifestFormat | None:
    """Return the rules for a manifest, None for any other file."""
    rows = load_rows("manifests", "manifest", ManifestFormat)
    return next((rules for rules in rows if matches_any(path, rules.files)), None)


def parse_manifest(path: str, text: str) -> Manifest:
    """Read a manifest. A broken one declares nothing."""
    rules = find_format(path) or ManifestFormat((), "program")
    manifest = Manifest(path, rules)
    if rules.format in ("text", "program"):
        _read_text(text, manifest)
        return manifest
    with suppress(ValueError, RecursionError):
        _read_data(tomllib.loads(text) if rules.format == "toml" else json.loads(text), manifest)
    return manifest


def _read_data(data: object, manifest: Manifest) -> None:
    for path in manifest.rules.sections:
        for section, value in _read_values_at(data, path):
            manifest.sections.append(section)
            manifest.dependencies += _read_dependencies(value, section)
    for path in manifest.rules.tools:
        for section, value in _read_values_at(data, path):
            if isinstance(value, dict):
                manifest.tools += "".join(f"[{name}] " for name in cast("dict[str, object]", value))
            else:
                manifest.tools += f"{section.rpartition('/')[2]}={value} "


def _read_values_at(data: object, path: str, section: str = "") -> Iterator[tuple[str, object]]:
    """Yield keys and values at a path of keys, separated by slashes; "*" is any letters."""
    key, _, rest = path.partition("/")
    if not path:
        yield section[1:], data
    elif isinstance(data, dict):
        for name, value in cast("dict[str, object]", data).items():
            if fnmatchcase(name, key):
                yield from _read_values_at(value, rest, f"{section}/{name}")


def _read_dependencies(value: object, section: str) -> Iterator[Dependency]:
    if isinstance(value, list):
        for entry in cast("list[object]", value):
            text = entry if isinstance(entry, str) else json.dumps(entry, default=str)
            match = _NAME.match(text)
            yield Dependency(match[1] if match else "", text, section)
    elif isinstance(value, dict):
        for name, entry in cast("dict[str, object]", value).items():
            text = entry if isinstance(entry, str) else json.dumps(entry, default=str)
            yield Dependency(name, f"{name}: {text}", section)


def _read_text(text: str, manifest: Manifest) -> None:
    rules = manifest.rules
    # Comments become empty lines, so that the numbers of the other lines stay right.
    manifest.tools = re.sub(rules.comment, lambda match: "\n" * match[0].count("\n"), text)
    lines = text.split("\n")
    for match in re.finditer(rules.dependency, manifest.tools):
        number = manifest.tools.count("\n", 0, match.start("n")) + 1
        manifest.dependencies.append(Dependency(match["n"].strip(), lines[number - 1], f"{number}"))


_MOST_MANIFESTS = 12


class Project(Struct):
    """The files of a project, without those in folders that `left_out` names."""

    left_out: list[str]
    files: list[str]  # manifests and configuration files
    manifests: list[Manifest]
    unread: list[str]  # manifests from which no packages were read, or not to their end
    problems: list[str]  # reasons why not all was searched


class Evidence(Struct):
    """A technology and the places where it was seen."""

    technology: Technology
    listed: list[str] = field(default_factory=list[str])
    configured: list[str] = field(default_factory=list[str])  # files of its own, its settings
    used_in: list[str] = field(default_factory=list[str])


def find_technologies(request: Request, context: Context) -> Plan:
    """List technologies with the files that belong to them; for a stack also packages."""
    context.require("read", "grep", "glob")
    say = context.say
    wants_tests = request.kind == "tests"
    project = yield from _survey_project(request, with_tests=wants_tests)
    place = request.name_place(say)
    parts: list[str] = []
    if wants_tests or load_pattern("asks_for_tools").search(request.text):
        cells = [] if wants_tests else (yield from _count_languages(request, project, say))
        known = list(dict.fromkeys(row.name for row in _load_technologies(wants_tests)))
        rows = [_find_declarations(row, project) for row in _load_technologies(wants_tests)]
        if wants_tests:
            yield from _search_uses(rows, request, project)
        rows = [row for row in rows if row.used_in or row.configured or row.listed]
        rows.sort(key=lambda row: -len(row.used_in))
        at_least = say("at_least") if any(project.problems) else ""
        cells += [_describe_evidence(row, at_least, say) for row in rows]
        table = format_table(map(say, ("name", "aspect", "evidence")), cells) if cells else ""
        key = f"{request.kind}_seen" if cells else f"no_{request.kind}_seen"
        parts = [say(key, place=place, known=len(known), names=say.join(known)), table]
    if not wants_tests and load_pattern("asks_for_packages").search(request.text):
        parts.append(_describe_dependencies(project, place, say))
    if project.unread:
        paths = say.join_first(project.unread, "`")
        parts.append(say("no_packages_from", count=len(project.unread), files=paths))
    most = 6 if all(parts) else len(project.left_out)  # all if nothing was found
    parts.append(say("left_out", folders=say.join_first(project.left_out, "`", most)))
    return combine([*parts, context.describe_problems(project.problems)])


def _load_technologies(wants_tests: bool) -> list[Technology]:
    rows = load_rows("technologies", "technology", Technology)
    test_aspects = load_data("technologies")["test_aspects"]
    return [row for row in rows if (row.aspect in test_aspects) is wants_tests]


def _survey_project(request: Request, *, with_tests: bool) -> Steps[Project]:
    data: dict[str, list[str]] = load_data("languages")
    left_out = data["foreign_folders"] + ([] if with_tests else data["test_folders"])
    formats = load_rows("manifests", "manifest", ManifestFormat)
    names = {name for row in formats for name in row.files}
    names |= {name for row in _load_technologies(with_tests) for name in row.config}
    listing = yield from list_files(request, [f"**/{{{','.join(sorted(names))}}}"])
    left_out.sort(key=lambda name: not any(_is_in([name], path, request) for path in listing.rows))
    files = [path for path in listing.rows if not _is_in(left_out, path, request)]
    manifests = sorted(filter(find_format, files), key=lambda path: (path.count("/"), path))
    texts = yield from read_files(manifests[:_MOST_MANIFESTS])
    parsed = [parse_manifest(path, file.text) for path, file in texts.items()]
    unread = [x.path for x in parsed if texts[x.path].problem or not (x.sections or x.dependencies)]
    unread += manifests[_MOST_MANIFESTS:]
    return Project(left_out, files, parsed, unread, [listing.problem])


def _is_in(folders: list[str], path: str, request: Request) -> bool:
    """Return whether a path goes through one of the folders below the folder asked for."""
    below = f"/{path.removeprefix(f'{request.folder}/')}"
    return any(f"/{name}/" in below for name in folders)


def _make_glob(language: str) -> str:
    table: dict[str, list[str]] = load_data("languages")["suffixes"]
    suffixes = [suffix for name in language.split("/") for suffix in table[name]]
    return f"*{{{','.join(suffixes)}}}" if len(suffixes) > 1 else f"*{suffixes[0]}"


def _count_languages(
    request: Request, project: Project, say: Translator
) -> Steps[list[tuple[str, ...]]]:
    """Count the files of each language outside of the folders that are left out."""
    table: dict[str, list[str]] = load_data("languages")["suffixes"]
    counts = dict.fromkeys(table, 0)
    # A glob cannot leave folders out: count all files, then take off those in these folders.
    for sign, start in ((1, "**/"), (-1, f"**/{{{','.join(project.left_out)}}}/**/")):
        if not (names := [name for name in counts if sign > 0 or counts[name]]):
            break
        outputs = yield [
            plan_call("glob", pattern=f"{start}{_make_glob(name)}", path=request.folder)
            for name in names
        ]
        for name, listing in zip(names, map(parse_listing, outputs), strict=True):
            counts[name] += sign * listing.total
            project.problems.append(listing.problem)
    return [
        (name, say("language"), f"`*{'` `*'.join(table[name])}`: {say.count(count, 'file')}")
        for name, count in counts.items()
        if count
    ]


def _search_uses(rows: list[Evidence], request: Request, project: Project) -> Steps[None]:
    rows = [row for row in rows if row.technology.imports]
    searches = [
        (x.imports, x.files or f"**/{_make_glob(x.language)}")
        for x in (row.technology for row in rows)
    ]
    listings = yield from grep_all(request, searches)
    for row, listing in zip(rows, listings, strict=True):
        row.used_in = [x for x in listing.rows if not _is_in(project.left_out, x, request)]
        project.problems.append(listing.problem)


def _find_declarations(technology: Technology, project: Project) -> Evidence:
    row = Evidence(technology)
    row.configured = [path for path in project.files if matches_any(path, technology.config)]
    for manifest in project.manifests:
        if len({manifest.rules.language, technology.language} - {""}) > 1:
            continue
        for item in manifest.dependencies:
            names = {item.name, item.name.lower(), f"*:{item.name.rpartition(':')[2]}"}
            if not names.isdisjoint(technology.packages):
                row.listed.append(f"`{item.text.strip()}` (`{manifest.path}` {item.section})")
        if technology.tool and re.search(technology.tool, manifest.tools):
            row.configured.append(manifest.path)
    return row


def _describe_evidence(row: Evidence, at_least: str, say: Translator) -> tuple[str, str, str]:
    parts = [say("listed_as", items=say.join_first(row.listed))] if row.listed else []
    parts += [
        say(key, count=at_least + say.count(len(files), "file"), files=say.join_first(files, "`"))
        for key, files in (("configured_in", row.configured), ("used_in", row.used_in))
        if files
    ]
    return f"**{row.technology.name}**", say(row.technology.aspect), say("part_end").join(parts)


def _describe_dependencies(project: Project, place: str, say: Translator) -> str:
    parts: list[str] = []
    for manifest in project.manifests:
        items = manifest.dependencies
        rows = [f"{item.section}: {item.text}" for item in items if not manifest.sections]
        for section in manifest.sections:
            texts = [item.text for item in items if item.section == section]
            rows += [f"[{section}]", *(f"    {text}" for text in texts or [say("no_entry")])]
        parts += [f"`{manifest.path}`:", format_block(rows, say)] if rows else []
    return combine([say("dependencies" if parts else "no_dependencies", place=place), *parts])
