"""From a request to the plan that serves it: done in this run, or given to child runs."""

from __future__ import annotations

import msgspec

from .children import ChildAnswer, ChildPrompt, join_answers, run_children
from .file_summaries import summarize
from .line_counts import count_lines
from .module_demo import create_module
from .plans import CannotAnswer, Context, Plan, Request, combine
from .project_survey import find_projects
from .symbol_search import find_symbol
from .technology_stack import find_stack
from .testing_frameworks import find_frameworks

_PLANS = {
    "create": create_module,
    "tests": find_frameworks,
    "stack": find_stack,
    "summarise": summarize,
    "find": find_symbol,
    "count": count_lines,
}
_TITLES = {
    "tests": "Find the testing framework",
    "stack": "Analyse the technology stack",
    "find": "Find definition and uses",
    "count": "Count files and lines",
}


def start_plan(request: Request, context: Context) -> Plan:
    """Return the plan for a request.

    Work that reads much goes to children when `task` is offered.
    """
    if "task" in context.tools and request.kind in _TITLES:
        if request.kind == "tests" and not (request.scopes or request.excluded):
            return _one_child_per_project(context)
        if request.kind in ("tests", "stack") or request.delegate:
            return _one_child(request, context)
    return _answer_here(request, context)


def _answer_here(request: Request, context: Context) -> Plan:
    """Run the plan once for each folder that the request names."""
    if len(request.scopes) <= 1:
        return (yield from _PLANS[request.kind](request, context))
    parts: list[str] = []
    for scope in request.scopes:
        folder = msgspec.structs.replace(request, scopes=(scope,))
        parts += [f"## {scope}", (yield from _PLANS[request.kind](folder, context))]
    return combine(parts)


def _one_child_per_project(context: Context) -> Plan:
    """Look for testing frameworks with one child for each project of the repository."""
    context.require("glob")
    say = context.say
    projects = yield from find_projects()
    question = say("Find which testing framework this project uses")
    work: list[ChildPrompt] = []
    for project in projects:
        title = say("Find the testing framework")
        limit = ""
        if project:
            title = say("Testing framework in {project}", project=project)
            limit = say(", looking only under {folder}", folder=project)
        elif projects[1:]:
            limit = say(", leaving out {folders}", folders=say.join(projects[1:]))
        work.append(ChildPrompt(f"{question}{limit}.", title))
    answers = yield from run_children(work, context)
    if len(answers) == 1 or not any(answer.text for answer in answers):
        return _require_text(answers)
    sections = [
        f"## `{project or './'}`\n\n{join_answers([answer])}"
        for project, answer in zip(projects, answers, strict=True)
    ]
    return combine(sections)


def _one_child(request: Request, context: Context) -> Plan:
    """Give the request as it is to one child, which has no children of its own."""
    title = context.say(_TITLES[request.kind])
    answers = yield from run_children([ChildPrompt(request.text.strip(), title)], context)
    return _require_text(answers)


def _require_text(answers: list[ChildAnswer]) -> str:
    if not any(answer.text for answer in answers):
        raise CannotAnswer(join_answers(answers))
    return join_answers(answers)
