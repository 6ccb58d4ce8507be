"""Request "tests": which testing frameworks a project uses, with the evidence for each."""

from __future__ import annotations

import re
from fnmatch import fnmatch

from msgspec import Struct, field

from .catalog import Framework, Language, load_rows
from .plans import Context, Plan, Request, Steps, Translator, combine, plan_call
from .project_survey import Project, describe_problems, survey_project
from .tool_output import format_table, is_own_file, keep_covered, parse_listing

_THIS_PROJECT = "this project itself"
_KINDS = ("framework", "e2e", "library", "runner", "benchmark")
_MAIN_KINDS = ("framework", "e2e")
_SEARCH_LIMIT = 500


class Evidence(Struct):
    """A framework and where it was seen.

    Arguments:
        declared: manifests that name it.
        configured: files that configure it.
        used: test files that use it.
    """

    framework: Framework
    version: str = ""
    declared: list[str] = field(default_factory=list[str])
    configured: list[str] = field(default_factory=list[str])
    used: list[str] = field(default_factory=list[str])

    @property
    def is_active(self) -> bool:
        """True when the framework is used or configured, not only declared."""
        return bool(self.used or self.configured)


def find_frameworks(request: Request, context: Context) -> Plan:
    """Find the frameworks of the project, or of the folder that the request names."""
    context.require("read", "grep", "glob")
    project = yield from survey_project(request)
    languages = [language for language, _ in project.find_languages()]
    matches = yield from _search_imports(languages, project, request)
    place = f"`{request.scope}`" if request.scope else context.say("The project")
    answer = _describe(languages, project, matches, place, context.say)
    return combine([answer, describe_problems(project.problems, context.say)])


def _search_imports(
    languages: list[Language], project: Project, request: Request
) -> Steps[dict[str, list[str]]]:
    """Return the files that import each framework, and by language name the plain test files."""
    names = [language.name for language in languages]
    searches = {
        framework.name: (framework.imports, framework.files)
        for framework in load_rows("frameworks", "framework", Framework)
        if framework.language in names and framework.imports
    }
    searches |= {x.name: (x.plain_test, x.plain_test_files) for x in languages if x.plain_test}
    if not searches:
        return {}
    outputs = yield [
        plan_call(
            "grep",
            pattern=pattern,
            path=request.folder,
            glob=files[0] if len(files) == 1 else None,
            head_limit=_SEARCH_LIMIT,
        )
        for pattern, files in searches.values()
    ]
    matches: dict[str, list[str]] = {}
    for (name, (_, files)), output in zip(searches.items(), outputs, strict=True):
        listing = parse_listing(output)
        project.problems.append(listing.problem)
        matches[name] = [
            path
            for path in keep_covered(request, listing.rows)
            if is_own_file(path, request.scope) and _matches_any(path, files)
        ]
    return matches


def _matches_any(path: str, globs: tuple[str, ...]) -> bool:
    name = path.rpartition("/")[2]
    return any(fnmatch(name, glob.rpartition("/")[2]) for glob in globs)


def _describe(
    languages: list[Language],
    project: Project,
    matches: dict[str, list[str]],
    place: str,
    say: Translator,
) -> str:
    rows: list[Evidence] = []
    notes: list[str] = []
    for language in languages:
        found = [
            _find_evidence(framework, language, project, matches.get(framework.name, []))
            for framework in load_rows("frameworks", "framework", Framework)
            if framework.language == language.name
        ]
        tests = [path for path in matches.get(language.name, []) if _is_test(path, language)]
        plain = _assign_plain_tests(found, tests)
        if plain:
            text = "{count} {name} test files name no framework: {files}."
            files = say.join_files(plain)
            notes.append(say(text, count=len(plain), name=language.name, files=files))
        seen = [row for row in found if row.is_active or row.declared]
        rows += sorted(seen, key=_rank)
    rows.sort(key=lambda row: not row.is_active)
    main = [r for r in rows if r.is_active and r.framework.kind in _MAIN_KINDS]
    names = say.join(f"**{row.framework.name}**" for row in main)
    lead = say("{place} uses {names}.", place=place, names=names)
    if not main:
        lead = say(
            "{place} shows **no testing framework** that this model knows: no test file uses one.",
            place=place,
        )
    cells = [(f"**{r.framework.name}**", _version(r, say), _describe_role(r, say)) for r in rows]
    head = (say("Framework"), say("Version"), say("Role"))
    return combine([lead, format_table(head, cells) if cells else "", "\n".join(notes)])


def _is_test(path: str, language: Language) -> bool:
    return bool(re.search(language.test_path, path)) and path.endswith(language.suffixes)


def _find_evidence(
    framework: Framework, language: Language, project: Project, matches: list[str]
) -> Evidence:
    row = Evidence(framework)
    for manifest in project.manifests:
        if not language.has_manifest(manifest.path):
            continue
        if manifest.project.lower() in framework.packages:
            row.version = _THIS_PROJECT
            row.configured.append(manifest.path)
        for dependency in manifest.dependencies:
            if dependency.name in framework.packages:
                row.version = row.version or dependency.version
                row.declared.append(manifest.path)
        is_own = manifest.path in project.files
        if is_own and framework.tool and re.search(framework.tool, manifest.tools):
            row.configured.append(manifest.path)
    if framework.config:
        row.configured += [path for path in project.files if re.search(framework.config, path)]
    is_test_code = framework.kind not in ("runner", "benchmark")
    row.used = [p for p in matches if not is_test_code or re.search(language.test_path, p)]
    return row


def _assign_plain_tests(rows: list[Evidence], plain: list[str]) -> list[str]:
    """Give tests that import no framework to the one set up to run them; return what is left."""
    explicit = {p for row in rows if row.framework.kind in _MAIN_KINDS for p in row.used}
    free = [path for path in plain if path not in explicit]
    runners = [
        row for row in rows if row.framework.runs_plain_tests and (row.declared or row.is_active)
    ]
    if not runners:
        return free
    best = min(runners, key=lambda row: (not row.configured, not row.declared, -len(row.used)))
    best.used += free
    return []


def _rank(row: Evidence) -> tuple[int, bool, int]:
    is_sure = bool(row.declared or row.configured)
    return _KINDS.index(row.framework.kind), not is_sure, -len(row.used)


def _version(row: Evidence, say: Translator) -> str:
    if row.version == _THIS_PROJECT:
        return say(_THIS_PROJECT)
    undeclared = say("any") if row.declared else say("not declared")
    return row.version or row.framework.bundled_with or undeclared


def _describe_role(row: Evidence, say: Translator) -> str:
    declared = say.join_files(row.declared)
    if not row.is_active:
        return say("Declared only, in {files}; no test file uses it", files=declared)
    if row.used:
        count = len(row.used)
        plural = "s" if count > 1 else ""
        files = say.join_files(row.used)
        role = say(
            "Used in {count} file{plural} ({files})", count=count, plural=plural, files=files
        )
    else:
        role = say("Configured in {files}", files=say.join_files(row.configured))
    return role + (say("; declared in {files}", files=declared) if row.declared else "")
