"""Request "stack": languages, build tools, package managers and dependencies of a project."""

from __future__ import annotations

import re

from .catalog import build_tools
from .plans import Context, Plan, Request, Translator, combine
from .project_survey import Project, survey_project
from .requests import find_exclusions, find_scopes
from .tool_output import format_table

_MOST_ROWS = 25
_NAMED_FILES = 3


def find_stack(request: Request, context: Context) -> Plan:
    """Read the manifests of the project, or of each folder that the request names."""
    context.require("read", "grep", "glob")
    excluded = find_exclusions(request.text)
    scopes = find_scopes(request.text) or [""]
    parts: list[str] = []
    for scope in scopes:
        project = yield from survey_project(scope, excluded)
        heading = f"### {scope}\n" if len(scopes) > 1 else ""
        parts.append(heading + _describe(project, context.say))
    return combine(parts)


def _describe(project: Project, say: Translator) -> str:
    rows: list[tuple[str, ...]] = []
    for language in project.find_languages():
        count = sum(path.endswith(language.suffixes) for path in project.files)
        if count:
            files = say("{count} files", count=count)
            rows.append((say("Language"), language.name, files))
    for aspect, tools in build_tools().items():
        label = say(aspect.capitalize())
        for name, pattern in tools.items():
            evidence = _find_tool(aspect, pattern, project)
            if evidence:
                rows.append((label, name, _format_files(evidence)))
    if not rows:
        return say("No source files and no manifests were found.")
    head = (say("Aspect"), say("Name"), say("Evidence"))
    lead = say("The technology stack:")
    return combine([lead, format_table(head, rows), _describe_dependencies(project, say)])


def _find_tool(aspect: str, pattern: str, project: Project) -> list[str]:
    """Return the files that show that a tool is used."""
    if aspect != "build backend":
        return [p for p in project.files if re.fullmatch(pattern, p.rpartition("/")[2])]
    return [
        manifest.path
        for manifest in project.manifests
        if manifest.path.endswith("pyproject.toml") and pattern in manifest.tools.split(" ")[-1]
    ]


def _describe_dependencies(project: Project, say: Translator) -> str:
    own_names = {manifest.project.lower() for manifest in project.manifests}
    sources = {m.path.removesuffix(".in") for m in project.manifests if m.path.endswith(".in")}
    runtime: dict[str, tuple[str, str]] = {}
    development: dict[str, tuple[str, str]] = {}
    for manifest in project.manifests:
        if manifest.path.removesuffix(".txt") in sources:
            continue  # a lock file of the list beside it
        for dependency in manifest.dependencies:
            if dependency.name.lower() not in own_names:
                table = development if dependency.is_dev else runtime
                table.setdefault(dependency.name, (dependency.version, manifest.path))
    development = {name: row for name, row in development.items() if name not in runtime}
    if not runtime and not development:
        return say("No dependencies are declared.")
    extra = say("Development and optional dependencies")
    return combine(
        [
            _format_dependencies(say("Dependencies"), runtime, say),
            _format_dependencies(extra, development, say),
        ]
    )


def _format_dependencies(title: str, table: dict[str, tuple[str, str]], say: Translator) -> str:
    if not table:
        return ""
    rows = [
        (name, version or say("any"), f"`{path}`")
        for name, (version, path) in list(table.items())[:_MOST_ROWS]
    ]
    head = (say("Name"), say("Version"), say("Declared in"))
    left = len(table) - len(rows)
    more = say("… and {left} more.", left=left) if left else ""
    return combine([f"**{title}** ({len(table)})", format_table(head, rows), more])


def _format_files(paths: list[str]) -> str:
    shown = ", ".join(f"`{path}`" for path in paths[:_NAMED_FILES])
    return f"{shown}, …" if len(paths) > _NAMED_FILES else shown
