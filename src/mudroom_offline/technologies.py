"""Requests "tests", "stack" and "packages": files and lines belonging to technologies."""

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

Entry = tuple[str, str, str]  # name, text, and section or number of the line
_MOST_MANIFESTS = 12
Uses = dict[Technology, list[str]]
_NAME = re.compile(r"\s*([A-Za-z@][\w./@-]*)(?![\w.-]*[:+])")


class Manifest(Struct):
    """What one manifest declares."""

    path: str
    rules: ManifestFormat
    dependencies: list[Entry] = field(default_factory=list[Entry])
    sections: list[str] = field(default_factory=list[str])  # the sections read
    tools: str = ""  # names of configured tools, and test commands


def find_format(path: str) -> ManifestFormat | None:
    """Find the rules for a manifest, None for any other file."""
    rows = load_rows("manifests", "manifest", ManifestFormat)
    return next((rules for rules in rows if matches_any(path, rules.files)), None)


def parse_manifest(path: str, text: str) -> Manifest:
    """Read a manifest. A broken one declares nothing."""
    rules = find_format(path) or ManifestFormat((), "program")
    manifest = Manifest(path, rules)
    if rules.format in ("text", "program"):
        # Turn comments into empty lines, so that the other lines keep their numbers.
        manifest.tools = re.sub(rules.comment, lambda found: "\n" * found[0].count("\n"), text)
        lines = text.split("\n")
        for match in re.finditer(rules.dependency, manifest.tools):
            number = manifest.tools.count("\n", 0, match.start("n")) + 1
            entry = (match["n"].strip(), lines[number - 1], f"{number}")
            manifest.dependencies.append(entry)
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


def _read_dependencies(value: object, section: str) -> Iterator[Entry]:
    names = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    for entry in cast("list[object]", value) if isinstance(value, list) else ():
        text = entry if isinstance(entry, str) else json.dumps(entry, default=str)
        match = _NAME.match(text)
        yield match[1] if match else "", text, section
    for name, entry in names.items():
        text = entry if isinstance(entry, str) else json.dumps(entry, default=str)
        yield name, f"{name}: {text}", section


class Project(Struct):
    """A project's files, without those in the folders of `left_out`."""

    left_out: list[str]
    files: list[str]  # manifests and configuration files
    manifests: list[Manifest]
    unread: list[str]  # manifests whose packages were not read, or not to the end
    problems: list[str]  # reasons why the search is incomplete


def find_technologies(request: Request, context: Context) -> Plan:
    """List technologies with their files; for a stack, also packages."""
    context.require("read", "grep", "glob")
    say = context.say
    wants_tests = request.kind == "tests"
    project = yield from _survey_project(request, with_tests=wants_tests)
    place = request.name_place(say)
    parts: list[str] = []
    wants_packages = not wants_tests and load_pattern("asks_for_packages").search(request.text)
    if load_pattern("asks_for_tools").search(request.text) or not wants_packages:
        counts: dict[str, int] = {}
        if not wants_tests:
            counts = yield from count_languages(request, project.left_out, project.problems)
        globs = {x: "` `*".join(load_data("languages")["suffixes"][x]) for x in counts if counts[x]}
        cells = [
            (x, say("language"), f"`*{globs[x]}`: {say.count(counts[x], 'file')}") for x in globs
        ]
        rows = _load_technologies(wants_tests)
        known = list(dict.fromkeys(row.name for row in rows))
        uses = (yield from _search_uses(rows, request, project)) if wants_tests else {}
        at_least = say("at_least") if any(project.problems) else ""
        for row in sorted(rows, key=lambda row: -len(uses.get(row, []))):
            if evidence := _find_evidence(row, uses.get(row, []), project, at_least, say):
                cells.append((f"**{row.name}**", say(row.aspect), evidence))
        table = format_table(map(say, ("name", "aspect", "evidence")), cells) if cells else ""
        key = f"{request.kind}_seen" if cells else f"no_{request.kind}_seen"
        parts = [say(key, place=place, known=len(known), names=say.join(known)), table]
    if not wants_tests and load_pattern("asks_for_runtime").search(request.text):
        other = load_data("manifests")["not_runtime"]
        for manifest in project.manifests:
            manifest.sections = [x for x in manifest.sections if not re.search(other, x)]
            manifest.dependencies = [x for x in manifest.dependencies if not re.search(other, x[2])]
        parts.append(say("runtime_only"))
    if wants_packages:
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
    return any(f"/{x}/" in f"/{path.removeprefix(f'{request.folder}/')}" for x in folders)


def _make_glob(language: str) -> str:
    table: dict[str, list[str]] = load_data("languages")["suffixes"]
    suffixes = [suffix for name in language.split("/") for suffix in table[name]]
    return f"*{{{','.join(suffixes)}}}" if len(suffixes) > 1 else f"*{suffixes[0]}"


def count_languages(
    request: Request, left_out: list[str], problems: list[str]
) -> Steps[dict[str, int]]:
    """Count each language's files outside some folders."""
    counts = dict.fromkeys(cast("dict[str, list[str]]", load_data("languages")["suffixes"]), 0)
    # A glob cannot leave folders out: count all files, then subtract those in these folders.
    for sign, start in ((1, "**/"), (-1, f"**/{{{','.join(left_out)}}}/**/")):
        if not (names := [name for name in counts if sign > 0 or counts[name]]):
            break
        outputs = yield [
            plan_call("glob", pattern=f"{start}{_make_glob(name)}", path=request.folder)
            for name in names
        ]
        for name, listing in zip(names, map(parse_listing, outputs), strict=True):
            counts[name] += sign * listing.total
            problems.append(listing.problem)
    return counts


def _search_uses(rows: list[Technology], request: Request, project: Project) -> Steps[Uses]:
    rows = [row for row in rows if row.imports]
    searches = [(x.imports, x.files or f"**/{_make_glob(x.language)}") for x in rows]
    listings = yield from grep_all(request, searches)
    project.problems.extend(listing.problem for listing in listings)
    found = [[x for x in y.rows if not _is_in(project.left_out, x, request)] for y in listings]
    return dict(zip(rows, found, strict=True))


def _find_evidence(
    row: Technology, used_in: list[str], project: Project, at_least: str, say: Translator
) -> str:
    listed: list[str] = []
    configured = [path for path in project.files if matches_any(path, row.config)]
    for manifest in project.manifests:
        if len({manifest.rules.language, row.language} - {""}) > 1:
            continue
        for name, text, section in manifest.dependencies:
            names = {name, name.lower(), f"*:{name.rpartition(':')[2]}"}
            if not names.isdisjoint(row.packages):
                listed.append(f"`{text.strip()}` (`{manifest.path}` {section})")
        if row.tool and re.search(row.tool, manifest.tools):
            configured.append(manifest.path)
    parts = [say("listed_as", items=say.join_first(listed))] if listed else []
    parts += [
        say(key, count=at_least + say.count(len(files), "file"), files=say.join_first(files, "`"))
        for key, files in (("configured_in", configured), ("used_in", used_in))
        if files
    ]
    return say("part_end").join(parts)


def _describe_dependencies(project: Project, place: str, say: Translator) -> str:
    parts: list[str] = []
    for manifest in project.manifests:
        items = manifest.dependencies
        rows = [f"{section}: {text}" for _, text, section in items if not manifest.sections]
        for section in manifest.sections:
            texts = [text for _, text, named in items if named == section]
            rows += [f"[{section}]", *(f"    {text}" for text in texts or [say("no_entry")])]
        parts += [f"`{manifest.path}`:", format_block(rows, say)] if rows else []
    return combine([say("dependencies" if parts else "no_dependencies", place=place), *parts])
