"""Requests "tests" and "stack": the technologies of a project, with the evidence for each."""

from __future__ import annotations

import re

from msgspec import Struct, field

from .catalog import ManifestFormat, Technology, load_data, load_rows, matches_any
from .manifests import Dependency, Manifest, find_format, parse_manifest
from .plans import Context, Plan, Request, Steps, Translator, combine, plan_call
from .tool_output import format_table, list_files, parse_listing, read_files, search_all

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
    problems: list[str]  # reasons why not all was searched
    notes: list[str]  # manifests that were not read to their end


class Evidence(Struct):
    """A technology and the places where it was seen."""

    technology: Technology
    listed: list[Dependency] = field(default_factory=list[Dependency])
    configured: list[str] = field(default_factory=list[str])  # files of its own, its settings
    used_in: list[str] = field(default_factory=list[str])
    is_cut: bool = False  # True when more files may use it
    is_used: bool = False  # True when the top level lists or configures it, and files use it


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
        suffixes = load_data("languages")["suffixes"]
        cells: list[tuple[str, ...]] = []
        for name, count in filter(lambda item: item[1], languages.items()):
            evidence = f"`*{'` `*'.join(suffixes[name])}`: {say.count(count, 'file')}"
            cells.append((name, say("language"), "", evidence))
        cells += [_describe_evidence(row, say) for row in rows]
        head = map(say, ("name", "aspect", "version", "evidence"))
        lead = _describe_tests(rows, request, say) if wants_tests else say("stack")
        parts = [lead, format_table(head, cells) if cells else ""]
    if not wants_tests:
        parts.append(_describe_dependencies(project, say))
    return combine([*parts, context.describe_problems(project.problems, project.notes)])


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
    problems += [f"{count:,} more manifests" for count in [len(manifests) - len(texts)] if count]
    notes = [f"`{path}`: {file.problem}" for path, file in texts.items() if file.problem]
    notes += [manifest.problem for manifest in parsed]
    counts = {name: listed.total for name, listed in zip(globs, counted, strict=True)}
    return Project(counts, files, parsed, problems, notes)


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
    technologies = load_rows("technologies", "technology", Technology)
    rows = [_find_declarations(technology, project) for technology in technologies]
    searched = [
        row for row in rows if row.technology.imports and project.counts[row.technology.language]
    ]
    searches = [
        (x.imports, x.files or globs[x.language]) for x in (row.technology for row in searched)
    ]
    listings = (yield from search_all(request, searches)) if searches else []
    for row, listing in zip(searched, listings, strict=True):
        row.used_in = [path for path in listing.rows if _is_own_file(path, request)]
        row.is_cut = bool(listing.problem)
        project.problems.append(listing.problem)
        paths = [*row.configured, *(item.place.split("`")[1] for item in row.listed)]
        is_at_top = any("/" not in path.removeprefix(f"{request.folder}/") for path in paths)
        row.is_used = is_at_top and bool(row.used_in)
    active = [row for row in rows if row.used_in or row.configured]
    listed = [row for row in rows if row.listed and row not in active]
    return sorted([*active, *listed], key=lambda row: row.technology.aspect in _TEST_ASPECTS)


def _find_declarations(technology: Technology, project: Project) -> Evidence:
    """Return the files that configure a technology and the manifests that list it."""
    row = Evidence(technology)
    row.configured = [path for path in project.files if matches_any(path, technology.config)]
    for manifest in project.manifests:
        if len({manifest.rules.language, technology.language} - {""}) > 1:
            continue
        for item in manifest.dependencies:
            names = {item.name, item.name.lower(), f"*:{item.name.rpartition(':')[2]}"}
            row.listed += [] if names.isdisjoint(technology.packages) else [item]
        if technology.tool and re.search(technology.tool, manifest.tools):
            row.configured.append(manifest.path)
    return row


def _describe_tests(rows: list[Evidence], request: Request, say: Translator) -> str:
    """Return the sentence that answers the question: used, signs only, or not recognised."""
    main = [row for row in rows if row.technology.aspect in _MAIN_ASPECTS]
    certain = say.join(f"**{row.technology.name}**" for row in main if row.is_used)
    others = say.join(f"**{row.technology.name}**" for row in main if not row.is_used)
    place = f"`{request.folder}/`" if request.folder else say("the_project")
    texts = [say("uses", place=place, names=certain)] if certain else []
    texts += [say("signs_of", place=place, names=others)] if others else []
    return "\n".join(texts) or say("none", place=place)


def _describe_evidence(row: Evidence, say: Translator) -> tuple[str, str, str, str]:
    """Return name, aspect, version and evidence of a technology."""
    at_least = say("at_least") if row.is_cut else ""
    listed = say.join_first(item.place for item in row.listed)
    parts = [say("listed_in", places=listed)] if listed else []
    sources = {"configured_in": row.configured, "used_in": row.used_in}
    parts += [
        say(key, count=at_least + say.count(len(files), "file"), files=say.join_first(files, "`"))
        for key, files in sources.items()
        if files
    ]
    versions = say.join_first(item.version for item in row.listed if item.version)
    version = versions or row.technology.bundled_with
    aspect = say(row.technology.aspect)
    return f"**{row.technology.name}**", aspect, version or say("not_seen"), "; ".join(parts)


def _describe_dependencies(project: Project, say: Translator) -> str:
    """List the packages of all manifests as they are written there."""
    groups: dict[tuple[str, str], list[str]] = {}
    for manifest in project.manifests:
        for item in manifest.dependencies:
            groups.setdefault((item.name, item.version), []).append(item.place)
    rows = [
        (name, version or say("not_seen"), say.join_first(places))
        for (name, version), places in groups.items()
    ]
    partial = [x.path for x in project.manifests if x.rules.format in ("program", "text")]
    note = say("programs", files=say.join_first(partial, "`")) if partial else ""
    if not rows:
        return combine([say("no_dependencies"), note])
    table = format_table(map(say, ("dependency", "version", "listed")), rows[:_MOST_ROWS])
    left = len(rows) - _MOST_ROWS
    more = say("more", left=left) if left > 0 else ""
    return combine([say("dependencies"), table, more, note])
