"""Request "tests": which testing frameworks a project uses, with the evidence for each."""

from __future__ import annotations

import re
from fnmatch import fnmatch

from msgspec import Struct, field

from .catalog import Framework, Language, frameworks
from .plans import (
    Context,
    Plan,
    Request,
    Steps,
    Translator,
    combine,
    plan_call,
)
from .project_survey import Project, survey_project
from .requests import find_exclusions, find_scopes
from .tool_output import format_table, is_own_file, parse_paths

_HEAD = ("Framework", "Version", "Role")
_NAMED_FILES = 3
_THIS_PROJECT = "this project itself"
_KINDS = ("framework", "e2e", "library", "runner", "benchmark")


class Evidence(Struct):
    """A framework and where it was seen.

    Arguments:
        declared: manifests that name it. configured: files that configure it.
        used: test files that use it. plain: how many of them import no framework.
        runs: name of the framework whose tests it runs.
    """

    framework: Framework
    version: str = ""
    declared: list[str] = field(default_factory=list[str])
    configured: list[str] = field(default_factory=list[str])
    used: list[str] = field(default_factory=list[str])
    plain: int = 0
    runs: str = ""

    @property
    def is_active(self) -> bool:
        """True when the framework is used, not only declared."""
        is_set_up = bool(self.configured or self.declared)
        return bool(self.used) or (self.framework.kind == "runner" and is_set_up)


def find_frameworks(request: Request, context: Context) -> Plan:
    """Find the frameworks of the project, or of each folder that the request names."""
    context.require("read", "grep", "glob")
    excluded = find_exclusions(request.text)
    scopes = find_scopes(request.text) or [""]
    parts: list[str] = []
    for scope in scopes:
        project = yield from survey_project(scope, excluded)
        yield from _search_imports(project, scope, excluded)
        heading = f"### {scope}\n" if len(scopes) > 1 else ""
        parts.append(heading + _describe(project, context.say, scope))
    return combine(parts)


def _search_imports(project: Project, scope: str, excluded: list[str]) -> Steps[None]:
    """Search for the imports of every framework of the languages that are here."""
    here = project.find_languages()
    names = {language.name for language in here}
    searched = [f for f in frameworks() if f.language in names and f.imports]
    plain = [language for language in here if language.plain_test]
    patterns = [(f.imports, f.files) for f in searched]
    patterns += [(language.plain_test, language.plain_test_files) for language in plain]
    if not patterns:
        return
    outputs = yield [
        plan_call(
            "grep",
            pattern=pattern,
            path=scope.rstrip("/") or None,
            glob=files[0] if len(files) == 1 else None,
            output_mode="files_with_matches",
            head_limit=500,
        )
        for pattern, files in patterns
    ]
    own = [
        [p for p in parse_paths(o) if is_own_file(p, scope) and not p.startswith(tuple(excluded))]
        for o in outputs
    ]
    for framework, paths in zip(searched, own, strict=False):
        project.matches[framework.name] = paths
    for language, paths in zip(plain, own[len(searched) :], strict=True):
        project.plain_tests[language.name] = [p for p in paths if _is_plain_test(p, language)]


def _is_plain_test(path: str, language: Language) -> bool:
    if not (re.search(language.test_path, path) and path.endswith(language.suffixes)):
        return False
    return language.name != "Python" or _matches_any(path, language.plain_test_files)


def _collect_evidence(project: Project) -> list[Evidence]:
    """Return the evidence for all frameworks, by language.

    Used ones first, only declared ones last.
    """
    rows: list[Evidence] = []
    for language in project.find_languages():
        known = [f for f in frameworks() if f.language == language.name]
        candidates = [_find_evidence(framework, language, project) for framework in known]
        _assign_plain_tests(candidates, project.plain_tests.get(language.name, []))
        _assign_runner(candidates)
        seen = [row for row in candidates if row.used or row.declared or row.configured]
        rows += sorted(seen, key=_rank)
    return rows


def _find_evidence(framework: Framework, language: Language, project: Project) -> Evidence:
    row = Evidence(framework)
    for manifest in filter(
        lambda manifest: language.has_manifest(manifest.path), project.manifests
    ):
        if manifest.project.lower() in framework.packages:
            row.version = _THIS_PROJECT
            row.configured = [manifest.path]
        for dependency in manifest.dependencies:
            if dependency.name in framework.packages:
                row.version = row.version or dependency.version
                if manifest.path not in row.declared:
                    row.declared.append(manifest.path)
        if framework.tool and re.search(framework.tool, manifest.tools):
            row.configured.append(manifest.path)
    if framework.config:
        row.configured += [path for path in project.files if re.search(framework.config, path)]
    for path in project.matches.get(framework.name, []):
        is_test = re.search(language.test_path, path) or framework.kind in ("runner", "benchmark")
        if is_test and _matches_any(path, framework.files):
            row.used.append(path)
    return row


def _matches_any(path: str, globs: tuple[str, ...]) -> bool:
    name = path.rpartition("/")[2]
    return any(fnmatch(name, glob.rpartition("/")[2]) for glob in globs)


def _assign_plain_tests(rows: list[Evidence], plain: list[str]) -> None:
    """Give test files that import nothing to the framework that is declared, configured or used."""
    explicit = {p for row in rows if row.framework.kind in ("framework", "e2e") for p in row.used}
    free = [path for path in plain if path not in explicit]
    takers = [
        row
        for row in rows
        if row.framework.runs_plain_tests and (row.declared or row.configured or row.used)
    ]
    if not takers and rows and rows[0].framework.language == "Python":
        takers = [row for row in rows if row.framework.runs_plain_tests]
    takers.sort(key=lambda row: (not row.configured, not row.declared, -len(row.used)))
    if takers and free:
        takers[0].used += free
        takers[0].plain = len(free)


def _assign_runner(rows: list[Evidence]) -> None:
    """Let a Python framework that no test names run the tests of the framework in the library."""
    bundled = [row for row in rows if row.framework.bundled_with and row.used]
    for row in rows:
        is_idle = row.framework.runs_plain_tests and not row.used
        is_python = row.framework.language == "Python"
        if is_idle and is_python and bundled and (row.declared or row.configured):
            row.used = list(bundled[0].used)
            row.runs = bundled[0].framework.name


def _rank(row: Evidence) -> tuple[int, bool, int]:
    kind = _KINDS.index(row.framework.kind) if row.is_active else len(_KINDS)
    is_sure = bool((row.declared or row.configured) and row.used)
    return kind, not is_sure, -len(row.used)


def _describe(project: Project, say: Translator, scope: str) -> str:
    rows = _collect_evidence(project)
    main = [row for row in rows if row.is_active and row.framework.kind in ("framework", "e2e")]
    place = f"`{scope}`" if scope else say("The project")
    if main:
        names = say.join([f"**{row.framework.name}**" for row in main])
        lead = say("{place} uses {names}.", place=place, names=names)
    else:
        lead = say(
            "{place} uses **no testing framework** that this model knows: no test file uses one.",
            place=place,
        )
    table = [
        (f"**{row.framework.name}**", _format_version(row, say), _format_role(row, rows, say))
        for row in rows
    ]
    notes = _list_gaps(project, main, say)
    return combine([lead, format_table(_HEAD, table) if table else "", "\n".join(notes)])


def _list_gaps(project: Project, main: list[Evidence], say: Translator) -> list[str]:
    """Return a note for each language with a manifest or plain tests, but without a framework."""
    served = {row.framework.language for row in main}
    notes: list[str] = []
    for language in project.find_languages():
        manifests = [path for path in project.files if language.has_manifest(path)]
        if served and manifests and language.name not in served:
            top = min(manifests, key=lambda path: (path.count("/"), path))
            folder = f"{top.rpartition('/')[0]}/"
            notes.append(
                say(
                    "`{folder}` has no {name} testing framework configured.",
                    folder=folder,
                    name=language.name,
                )
            )
        count = len(project.plain_tests.get(language.name, []))
        if count and language.name not in served:
            notes.append(
                say(
                    "{count} {name} test files name no framework, and none is declared.",
                    count=count,
                    name=language.name,
                )
            )
    return notes


def _format_version(row: Evidence, say: Translator) -> str:
    if row.version == _THIS_PROJECT:
        return say(_THIS_PROJECT)
    undeclared = say("any") if row.declared else say("not declared")
    return row.version or row.framework.bundled_with or undeclared


def _format_role(row: Evidence, rows: list[Evidence], say: Translator) -> str:
    active = [other for other in rows if other.is_active]
    peers = [
        other
        for other in active
        if other.framework.kind == "framework"
        and other.framework.language == row.framework.language
    ]
    role = {
        "framework": say("Primary") if row in peers[:1] else say("Secondary"),
        "e2e": say("End-to-end tests"),
        "library": say("Library beside it"),
        "runner": say("Runner"),
        "benchmark": say("Benchmarks"),
    }[row.framework.kind]
    if not row.is_active:
        role = say("Declared only")
    if len({other.framework.language for other in active}) > 1:
        role += f" ({row.framework.language})"
    reasons = [_format_use(row, say)]
    if row.declared:
        reasons.append(say("declared in ") + _format_files(row.declared))
    elif row.configured:
        reasons.append(say("configured in ") + _format_files(row.configured))
    return f"{role} — {'; '.join(reason for reason in reasons if reason)}"


def _format_use(row: Evidence, say: Translator) -> str:
    if not row.used:
        return "" if row.is_active else say("no test file uses it")
    count = len(row.used)
    files = _format_files(row.used)
    if row.runs:
        return say(
            "runs the {count} {runs} test files ({files})", count=count, runs=row.runs, files=files
        )
    if row.plain == count and not row.declared and not row.configured:
        return say(
            "likely: {count} files of plain test functions ({files})", count=count, files=files
        )
    plural = "s" if count > 1 else ""
    return say("used in {count} file{plural} ({files})", count=count, plural=plural, files=files)


def _format_files(paths: list[str]) -> str:
    unique = list(dict.fromkeys(paths))
    shown = ", ".join(f"`{path}`" for path in unique[:_NAMED_FILES])
    return f"{shown}, …" if len(unique) > _NAMED_FILES else shown
