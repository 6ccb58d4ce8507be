"""Runs ordinary requests on a project and says of each answer whether it is right."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from mudroom import Report
from mudroom._session.session import Session
from mudroom_offline import OfflineModel

from .projects import Project, Tree, list_facts, make_repository, read_tree

MILK = "remember the milk"
EFFECTS = {
    "module",
    "new_file",
    "append",
    "replace",
    "stack_to_readme",
    "framework_to_notes",
}


class Outcome(Struct, frozen=True):
    """One request and its result: "right", "refused" or "wrong"."""

    key: str
    prompt: str
    result: str
    text: str


def read_requests(file: str, project: Project) -> Iterator[tuple[str, str]]:
    """Yield the expectation and the prompt of each request, filled with a project's words."""
    table = tomllib.loads(Path(__file__).with_name(file).read_text("utf-8"))
    for key, prompts in table.items():
        for prompt in (*prompts["en"], *prompts["zh"]):
            yield key, prompt.format_map(project.words)


async def run_requests(
    file: str, project: Project, folder: Path, part: slice = slice(None)
) -> list[Outcome]:
    """Answer a part of the requests, each in a fresh session.

    A request that changes the project leaves a fresh copy to the next one.
    """
    make_repository(project, folder / "template")
    outcomes: list[Outcome] = []
    root = folder / "0"
    before = after = read_tree(folder / "template")
    for number, (key, prompt) in enumerate(list(read_requests(file, project))[part]):
        if after != before or not number:
            root = folder / str(number)
            shutil.copytree(folder / "template", root)
        async with Session(
            model=OfflineModel(), cwd=str(root), home=str(folder / "home"), journal="memory"
        ) as session:
            report = await session.run(prompt)
        after = read_tree(root)
        result = judge(key, report, before, after, project)
        outcomes.append(Outcome(key, prompt, result, report.text or report.error))
    return outcomes


def judge(key: str, report: Report, before: Tree, after: Tree, project: Project) -> str:
    """Say whether an answer is right, refused or wrong. A refusal changes nothing."""
    if not report.ok and before == after:
        return "refused"
    if key in EFFECTS:
        is_right = has_effect(key, before, after, project)
        # Without the tools of its language, a module is there, and the run says it was not run.
        is_told = report.ok or (key == "module" and re.search("not run|未运行", report.error))
        return "right" if is_right and is_told else "wrong"
    facts = [] if key == "beyond" else list_facts(project, key)
    text = report.text.replace("**", "")
    is_right = report.ok and facts and all(re.search(fact, text) for fact in facts)
    return "right" if is_right and before == after else "wrong"


def has_effect(key: str, before: Tree, after: Tree, project: Project) -> bool:
    """Return whether a request changed what it asked for, and no other file."""
    changed = [path for path in after | before if after.get(path) != before.get(path)]
    if len(changed) != 1:
        return False
    path = changed[0]
    old, new = before.get(path, ""), after.get(path, "")
    phrase = project.words["phrase"]
    match key:
        case "module":
            functions = re.findall("(?i)capitalize|slugify", new)
            return path == project.module and not old and bool(functions)
        case "new_file":
            return path == "notes.txt" and not old and new.strip() == MILK
        case "append":
            return path == "README.md" and new.strip() == f"{old.strip()}\n{MILK}".strip()
        case "replace":
            return path == project.words["phrase_file"] and new == old.replace(phrase, MILK)
        case "stack_to_readme":
            added = new.removeprefix(old.rstrip("\n"))
            return path == "README.md" and bool(
                new.startswith(old.rstrip("\n")) and re.search(project.facts["stack"][0], added)
            )
        case _:
            return path == "notes.txt" and project.facts["framework"][0] in new
