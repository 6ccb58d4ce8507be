"""The projects of a repository, and the files and manifests of one project."""

from __future__ import annotations

import re

from msgspec import Struct, field

from .catalog import Language, languages, words
from .manifests import Manifest, is_manifest, is_pinned_list, parse_manifest
from .plans import Steps, plan_call
from .tool_output import is_own_file, parse_paths, read_files

_PROJECT_MANIFESTS = words("project_manifests")
_NESTING_MANIFESTS = words("nesting_manifests")
_MOST_PROJECTS = 12
_MOST_MANIFESTS = 60
_MOST_LISTED = 1000


class Project(Struct):
    """What is known of one project.

    Arguments:
        files: its own files, vendored and generated ones left out.
        manifests: its manifests, parsed; those of the whole repository too when it is a part.
        matches: framework name -> files in which its import was found.
        plain_tests: language name -> test files that name no framework.
    """

    files: list[str]
    manifests: list[Manifest]
    matches: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    plain_tests: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def find_languages(self) -> list[Language]:
        """Return the languages with files or manifests here, the one with most files first."""
        counts = {
            name: sum(path.endswith(language.suffixes) for path in self.files)
            for name, language in languages().items()
        }
        present = [
            language
            for name, language in languages().items()
            if counts[name] or any(map(language.has_manifest, self.files))
        ]
        return sorted(present, key=lambda language: -counts[language.name])


def find_projects() -> Steps[list[str]]:
    """Return the folders with a manifest of their own, "" for the top, which comes first.

    Of manifests that one build nests, like those of Maven modules, only the topmost one counts.
    """
    names = [*_PROJECT_MANIFESTS, *_NESTING_MANIFESTS]
    outputs = yield [plan_call("glob", pattern=f"**/{name}") for name in names]
    projects: set[str] = set()
    for name, output in zip(names, outputs, strict=True):
        folders = {path.rpartition("/")[0] for path in parse_paths(output) if is_own_file(path)}
        if name in _NESTING_MANIFESTS:
            folders = {f for f in folders if not any(_is_inside(f, top) for top in folders)}
        projects |= {f"{folder}/" for folder in folders if folder}
    outermost = {p for p in projects if not any(_is_inside(p, top) for top in projects)}
    chosen = sorted(projects if len(projects) < _MOST_PROJECTS else outermost)
    return ["", *chosen] if len(chosen) < _MOST_PROJECTS else [""]


def survey_project(scope: str, excluded: list[str]) -> Steps[Project]:
    """List the files of a folder and read its manifests.

    For a part, also those of the top folder.
    """
    folder = scope.rstrip("/") or None
    listing = plan_call(
        "grep",
        pattern=".",
        path=folder,
        output_mode="files_with_matches",
        head_limit=_MOST_LISTED,
    )
    outputs = yield [listing, plan_call("glob", pattern="*")]
    paths = set(parse_paths(outputs[0]))
    if len(paths) >= _MOST_LISTED - 100:
        paths |= yield from _list_by_language(folder)
    files = sorted(f for f in paths if is_own_file(f, scope) and not f.startswith(tuple(excluded)))
    top = [path for path in parse_paths(outputs[1]) if "/" not in path]
    manifests = sorted(
        {path for path in [*files, *top] if is_manifest(path)},
        key=lambda path: (path.count("/"), path),
    )
    project = Project(files, [])
    project.manifests = yield from _read_manifests(manifests[:_MOST_MANIFESTS])
    return project


def _list_by_language(
    folder: str | None,
) -> Steps[set[str]]:
    """List the source files and manifests of a folder that is too large to list whole."""
    names = [*_PROJECT_MANIFESTS, *_NESTING_MANIFESTS, "requirements*.txt", "setup.cfg", "tox.ini"]
    patterns = [f"**/{name}" for name in names]
    for language in languages().values():
        patterns += [f"**/*{suffix}" for suffix in language.suffixes]
    outputs = yield [plan_call("glob", pattern=pattern, path=folder) for pattern in patterns]
    return {path for output in outputs for path in parse_paths(output)}


def _read_manifests(
    paths: list[str],
) -> Steps[list[Manifest]]:
    pinned = [path for path in paths if is_pinned_list(path)]
    texts = yield from read_files(path for path in paths if path not in pinned)
    manifests = [parse_manifest(p, file.text) for p, file in texts.items() if not file.error]
    if pinned:
        outputs = yield [
            plan_call("grep", pattern="^[A-Za-z]", path=p, output_mode="content", head_limit=500)
            for p in pinned
        ]
        for path, output in zip(pinned, outputs, strict=True):
            lines = [re.sub(r"^.*?:\d+:", "", line) for line in output.text.split("\n")]
            manifests.append(parse_manifest(path, "\n".join(lines)))
    return manifests


def _is_inside(folder: str, top: str) -> bool:
    if folder == top:
        return False
    return not top or folder.startswith(f"{top.rstrip('/')}/")
