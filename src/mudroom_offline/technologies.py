"""Requests "tests" and "stack": the technologies of a project, with the evidence for each."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct, field

from .catalog import ManifestFormat, Technology, load_data, load_rows, matches_any
from .manifests import PURPOSES, Dependency, Manifest, find_format, parse_manifest
from .plans import Context, Plan, Request, Steps, Translator, combine, plan_call
from .tool_output import (
    describe_problems,
    format_table,
    list_files,
    parse_listing,
    read_files,
    search_all,
)

_MAIN_ASPECTS = ("testing framework", "end-to-end tests")
_TEST_ASPECTS = (*_MAIN_ASPECTS, "testing library", "test runner", "benchmarks")
_MOST_MANIFESTS = 80
_MOST_ROWS = 40
_ASKS_FOR_TOOLS = re.compile(r"(?i)stack|tech|lang|build|manager|framework|tool|[技语构包框工]")


class Project(Struct):
    """What is known of a project; its files leave out vendored and example folders."""

    counts: dict[str, int]  # of files, by language name
    files: list[str]  # manifests and configuration files
    manifests: list[Manifest]
    problems: list[str]  # reasons why not all was looked at


class Evidence(Struct):
    """A technology and the files where it was seen."""

    technology: Technology
    declared: dict[str, str] = field(default_factory=dict[str, str])  # version by manifest
    configured: list[str] = field(default_factory=list[str])
    imported: list[str] = field(default_factory=list[str])
    is_cut: bool = False  # True when more files import it

    @property
    def is_active(self) -> bool:
        """True when files import or configure it."""
        return bool(self.imported or self.configured)


def find_technologies(request: Request, context: Context) -> Plan:
    """Find frameworks and tools by imports, file names and manifests; for a stack also packages."""
    context.require("read", "grep", "glob")
    say = context.say
    project = yield from _survey_project(request)
    wants_tests = request.kind == "tests"
    parts: list[str] = []
    if wants_tests or _ASKS_FOR_TOOLS.search(request.text):
        rows = yield from _find_evidence(project, request)
        rows = [row for row in rows if not wants_tests or row.technology.aspect in _TEST_ASPECTS]
        languages = {} if wants_tests else project.counts
        cells = [
            (name, say("language"), "", say.count(count, "file"))
            for name, count in languages.items()
            if count
        ]
        cells += [_describe_evidence(row, say) for row in rows]
        head = map(say, ("name", "aspect", "version", "evidence"))
        lead = _describe_tests(rows, request, say) if wants_tests else say("stack")
        parts = [lead, format_table(head, cells) if cells else ""]
    if not wants_tests:
        parts.append(_describe_dependencies(project, say))
    return combine([*parts, describe_problems(project.problems, say)])


def _survey_project(request: Request) -> Steps[Project]:
    """Count the files of each language, list the configuration files, and read the manifests."""
    formats = load_rows("manifests", "manifest", ManifestFormat)
    technologies = load_rows("technologies", "technology", Technology)
    names = {name for row in formats for name in row.files}
    names |= {name for row in technologies for name in row.config}
    listing = yield from list_files(request, [f"**/{{{','.join(sorted(names))}}}"])
    globs = _make_language_globs()
    outputs = yield [plan_call("glob", pattern=x, path=request.folder) for x in globs.values()]
    counted = [parse_listing(output) for output in outputs]
    files = [path for path in listing.rows if _is_own_file(path, request)]
    manifests = sorted(filter(find_format, files), key=lambda path: (path.count("/"), path))
    texts = yield from read_files(manifests[:_MOST_MANIFESTS])
    parsed = [parse_manifest(path, file.text) for path, file in texts.items()]
    problems = [listing.problem, listing.describe_cut(), *(listed.problem for listed in counted)]
    problems += [f"`{path}`: {file.problem}" for path, file in texts.items() if file.problem]
    problems += [f"{count:,} more manifests" for count in [len(manifests) - len(texts)] if count]
    problems += [manifest.problem for manifest in parsed]
    counts = {name: listed.total for name, listed in zip(globs, counted, strict=True)}
    return Project(counts, files, parsed, problems)


def _is_own_file(path: str, request: Request) -> bool:
    """Return True when a path below the folder asked for is not vendored, fixture or example."""
    below = f"/{path.removeprefix(f'{request.folder}/')}"
    return not any(f"/{x}/" in below for x in load_data("languages")["foreign_folders"])


def _make_language_globs() -> dict[str, str]:
    table: dict[str, list[str]] = load_data("languages")["suffixes"]
    return {name: f"**/*{{{','.join([*suffixes, '.-'])}}}" for name, suffixes in table.items()}


def _find_evidence(project: Project, request: Request) -> Steps[list[Evidence]]:
    """Return the technologies that are seen, those in use first."""
    globs = _make_language_globs()
    rows = [
        _find_declarations(technology, project)
        for technology in load_rows("technologies", "technology", Technology)
    ]
    searched = [
        row for row in rows if row.technology.imports and project.counts[row.technology.language]
    ]
    searches = [
        (x.imports, x.files or globs[x.language]) for x in (row.technology for row in searched)
    ]
    listings = (yield from search_all(request, searches)) if searches else []
    for row, listing in zip(searched, listings, strict=True):
        row.imported = [path for path in listing.rows if _is_own_file(path, request)]
        row.is_cut = bool(listing.problem)
        project.problems.append(listing.problem)
    rows = [row for row in rows if row.is_active or row.declared]
    return sorted(rows, key=lambda row: (row.technology.aspect in _TEST_ASPECTS, not row.is_active))


def _find_declarations(technology: Technology, project: Project) -> Evidence:
    """Return the files that configure a technology and the manifests that declare it."""
    row = Evidence(technology)
    row.configured = [path for path in project.files if matches_any(path, technology.config)]
    for manifest in project.manifests:
        languages = {manifest.rules.language, technology.language} - {""}
        if len(languages) > 1:
            continue
        for dependency in manifest.dependencies:
            names = (dependency.name, f"*:{dependency.name.rpartition(':')[2]}")
            if not set(names).isdisjoint(technology.packages):
                row.declared.setdefault(manifest.path, dependency.version)
        if technology.tool and re.search(technology.tool, manifest.tools):
            row.configured.append(manifest.path)
    return row


def _describe_tests(rows: list[Evidence], request: Request, say: Translator) -> str:
    """Return the sentence that answers the question: used, only declared, or not recognised."""
    main = [row for row in rows if row.technology.aspect in _MAIN_ASPECTS]
    active = [row for row in main if row.is_active]
    names = say.join(f"**{row.technology.name}**" for row in active or main)
    place = f"`{request.folder}/`" if request.folder else say("the_project")
    return say("uses" if active else "declares" if main else "none", place=place, names=names)


def _describe_evidence(row: Evidence, say: Translator) -> tuple[str, str, str, str]:
    """Return name, aspect, version and evidence of a technology."""
    at_least = say("at_least") if row.is_cut else ""
    sources = {
        "imported_in": row.imported,
        "configured_in": row.configured,
        "declared_in": list(row.declared),
    }
    parts = [
        say(key, count=at_least + say.count(len(files), "file"), files=say.join_files(files))
        for key, files in sources.items()
        if files
    ]
    version = _join_versions(row.declared.values(), say) or row.technology.bundled_with
    aspect = say(row.technology.aspect)
    return f"**{row.technology.name}**", aspect, version or say("not_seen"), "; ".join(parts)


def _join_versions(versions: Iterable[str], say: Translator) -> str:
    """Return the first two versions, "" when there is none."""
    unique = list(dict.fromkeys(filter(None, versions)))
    return say.join([*unique[:2], *(["…"] if len(unique) > 2 else [])])


def _describe_dependencies(project: Project, say: Translator) -> str:
    items = [
        (item, manifest.path) for manifest in project.manifests for item in manifest.dependencies
    ]
    items.sort(key=lambda pair: PURPOSES.index(pair[0].purpose))
    groups: dict[str, list[tuple[Dependency, str]]] = {}
    for item, path in items:
        groups.setdefault(item.name, []).append((item, path))
    rows: list[tuple[str, ...]] = []
    for name, group in groups.items():
        version = _join_versions((item.version for item, _ in group), say) or say("not_seen")
        purposes = "; ".join(dict.fromkeys(say(item.purpose) for item, _ in group))
        rows.append((name, version, purposes, say.join_files(path for _, path in group)))
    programs = [x.path for x in project.manifests if x.rules.format in ("program", "text")]
    note = say("programs", files=say.join_files(programs)) if programs else ""
    if not rows:
        return combine([say("no_dependencies"), note])
    head = map(say, ("dependency", "version", "declared_as", "declared"))
    left = len(rows) - _MOST_ROWS
    more = say("more", left=left) if left > 0 else ""
    return combine([format_table(head, rows[:_MOST_ROWS]), more, note])
