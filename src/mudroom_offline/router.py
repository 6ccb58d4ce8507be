"""From a request to the plan that serves it: done in this run, or given to child runs."""

from __future__ import annotations

import re

from . import file_summaries, line_counts, module_demo, symbol_search, technology_stack
from . import testing_frameworks as testing
from .children import ChildPrompt, list_problems, run_children
from .plans import CannotAnswer, Context, Plan, Request, combine
from .project_survey import find_projects
from .requests import find_exclusions, find_scopes

_DIRECT_PLANS = {
    "tests": testing.find_frameworks,
    "stack": technology_stack.find_stack,
    "summarise": file_summaries.summarize,
    "find": symbol_search.find_symbol,
    "count": line_counts.count_lines,
}


def start_plan(request: Request, context: Context) -> Plan:
    """Return the plan for a request.

    Work that reads much goes to children when `task` is offered.
    """
    if request.kind == "create":
        return module_demo.create_module(request, context)
    if "task" in context.tools:
        if request.kind == "tests" and "glob" in context.tools and not find_scopes(request.text):
            return _one_child_per_project(context)
        if request.kind == "summarise":
            return file_summaries.summarize_with_children(request, context)
        if request.kind in ("tests", "stack") or request.delegate:
            return _one_child(request, context)
    return _DIRECT_PLANS[request.kind](request, context)


def _one_child_per_project(context: Context) -> Plan:
    """Look for testing frameworks with one child for each project of the repository."""
    say = context.say
    projects = yield from find_projects()
    work: list[ChildPrompt] = []
    question = say("Find which testing framework this project uses")
    for project in projects:
        if project:
            limit = say(", looking only under {folders}", folders=project)
            title = say("Testing framework in {project}", project=project)
        else:
            others = projects[1:]
            limit = _leaving_out(others, context)
            title = say("Find the testing framework")
        work.append(ChildPrompt(f"{question}{limit}.", title))
    reports = yield from run_children(work, context)
    if not any(report.text for report in reports):
        raise CannotAnswer("\n".join(list_problems(reports)))
    if len(reports) == 1:
        return combine([reports[0].text, *list_problems(reports)])
    sections = [
        f"## `{project or './'}`\n\n{report.text}"
        for project, report in zip(projects, reports, strict=True)
        if report.text
    ]
    return combine([*sections, *list_problems(reports)])


def _one_child(request: Request, context: Context) -> Plan:
    """Give the whole question to one child, without the words that ask for a child."""
    say = context.say
    prompt, title = _child_question(request, context)
    scopes = find_scopes(request.text)
    if scopes and request.kind != "find":
        prompt += say(", looking only under {folders}", folders=say.join(scopes))
    if request.kind != "find":
        prompt += _leaving_out(find_exclusions(request.text), context)
    reports = yield from run_children([ChildPrompt(prompt + ".", title)], context)
    if not reports[0].text:
        raise CannotAnswer(reports[0].problem)
    return combine([reports[0].text, *list_problems(reports)])


def _leaving_out(folders: list[str], context: Context) -> str:
    if not folders:
        return ""
    return context.say(", leaving out {folders}", folders=context.say.join(folders))


def _child_question(request: Request, context: Context) -> tuple[str, str]:
    """Return prompt and title for the child that answers a request."""
    say = context.say
    if request.kind == "tests":
        prompt = say("Find which testing framework this project uses")
        return prompt, say("Find the testing framework")
    if request.kind == "stack":
        prompt = say("Find the technology stack of this project: dependencies, build tools")
        return prompt, say("Analyse the technology stack")
    if request.kind == "count":
        kinds = " ".join(line_counts.find_kinds(request.text))
        prompt = f"{say('Count the lines of code and files by kind')} {kinds}".strip()
        return prompt, say("Count files and lines")
    names = ", ".join(f"`{name}`" for name in symbol_search.find_symbols(request.text))
    wanted = names or re.sub(r"\s+", " ", request.text)
    prompt = say("Find where {wanted} is defined and used", wanted=wanted)
    return prompt, say("Find definition and uses")
