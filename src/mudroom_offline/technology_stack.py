"""Request "stack": languages, build tools, package managers and dependencies of a project."""

from __future__ import annotations

import re

from .catalog import load_data
from .plans import Context, Plan, Request, Translator, combine
from .project_survey import Project, describe_problems, survey_project
from .tool_output import format_table

_MOST_ROWS = 40


def find_stack(request: Request, context: Context) -> Plan:
    """Read the manifests of the project, or of the folder that the request names."""
    context.require("read", "grep", "glob")
    project = yield from survey_project(request)
    tools = _describe_tools(project, context.say)
    dependencies = _describe_dependencies(project, context.say)
    return combine([tools, dependencies, describe_problems(project.problems, context.say)])


def _describe_tools(project: Project, say: Translator) -> str:
    rows: list[tuple[str, ...]] = []
    for language, count in project.find_languages():
        if count:
            rows.append((say("Language"), language.name, say("{count} files", count=count)))
    for aspect, tools in load_data("build_tools").items():
        for name, pattern in tools.items():
            evidence = _find_tool(aspect, pattern, project)
            if evidence:
                rows.append((say(aspect.capitalize()), name, say.join_files(evidence)))
    if not rows:
        return say("No source files and no manifests were found.")
    head = (say("Aspect"), say("Name"), say("Evidence"))
    return combine([say("The technology stack:"), format_table(head, rows)])


def _find_tool(aspect: str, pattern: str, project: Project) -> list[str]:
    """Return the files that show that a tool is used."""
    if aspect == "build backend":
        python = [m for m in project.manifests if m.path.endswith("pyproject.toml")]
        return [m.path for m in python if re.search(pattern, m.tools.rpartition("]")[2])]
    return [path for path in project.files if re.fullmatch(pattern, path.rpartition("/")[2])]


def _describe_dependencies(project: Project, say: Translator) -> str:
    own_names = {manifest.project.lower() for manifest in project.manifests}
    rows: dict[str, tuple[str, ...]] = {}
    for is_dev in (False, True):
        purpose = say("development or optional") if is_dev else say("to run")
        for manifest in project.manifests:
            for item in manifest.dependencies:
                if item.is_dev is is_dev and item.name.lower() not in own_names:
                    cells = (item.name, item.version or say("any"), purpose, f"`{manifest.path}`")
                    rows.setdefault(item.name, cells)
    if not rows:
        return say("No manifest that this model can read declares dependencies.")
    head = (say("Dependency"), say("Version"), say("Needed"), say("Declared in"))
    left = len(rows) - _MOST_ROWS
    more = say("… and {left} more.", left=left) if left > 0 else ""
    return combine([format_table(head, list(rows.values())[:_MOST_ROWS]), more])
