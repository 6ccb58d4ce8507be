"""The projects of a repository, and the files and manifests of one project."""

from __future__ import annotations

from msgspec import Struct

from .catalog import Language, load_rows, words
from .manifests import Manifest, is_manifest, parse_manifest
from .plans import Request, Steps, Translator, plan_call
from .tool_output import is_own_file, list_files, parse_listing, read_files

_MOST_PROJECTS = 12
_MOST_MANIFESTS = 60


class Project(Struct):
    """What is known of one project.

    Arguments:
        files: its own files, vendored and generated ones left out.
        manifests: its manifests and those of the top folder.
        problems: reasons why not all was looked at.
    """

    files: list[str]
    manifests: list[Manifest]
    problems: list[str]

    def find_languages(self) -> list[tuple[Language, int]]:
        """Return the languages with files or manifests here and their number of files."""
        counts = [
            (language, sum(path.endswith(language.suffixes) for path in self.files))
            for language in load_rows("languages", "language", Language)
        ]
        present = [
            (language, count)
            for language, count in counts
            if count or any(map(language.has_manifest, self.files))
        ]
        return sorted(present, key=lambda row: -row[1])


def describe_problems(problems: list[str], say: Translator) -> str:
    """Return a note that not everything was searched, "" when there is no problem."""
    reasons = say.join(dict.fromkeys(filter(None, problems)))
    return say("⚠ Not everything was searched: {reasons}", reasons=reasons) if reasons else ""


def find_projects() -> Steps[list[str]]:
    """Return "" for the top folder and the outermost folders with a manifest of their own."""
    outputs = yield [plan_call("glob", pattern=f"**/{name}") for name in words("project_manifests")]
    paths = [path for output in outputs for path in parse_listing(output).rows if is_own_file(path)]
    folders = {path.rpartition("/")[0] + "/" for path in paths if "/" in path}
    outermost = sorted(
        folder
        for folder in folders
        if not any(folder != other and folder.startswith(other) for other in folders)
    )
    return ["", *outermost] if len(outermost) < _MOST_PROJECTS else [""]


def survey_project(request: Request) -> Steps[Project]:
    """List the files of a project and read its manifests."""
    listing = yield from list_files(request, ["**/*"], own_only=True)
    top = parse_listing((yield [plan_call("glob", pattern="*")])[0]).rows
    manifests = sorted(
        {path for path in [*listing.rows, *top] if is_manifest(path)},
        key=lambda path: (path.count("/"), path),
    )
    texts = yield from read_files(manifests[:_MOST_MANIFESTS])
    problems = [listing.problem]
    problems += [f"{path}: {file.problem}" for path, file in texts.items() if file.problem]
    problems += [f"{path}: not read" for path in manifests[_MOST_MANIFESTS:]]
    parsed = [parse_manifest(path, file.text) for path, file in texts.items()]
    return Project(listing.rows, parsed, problems)
