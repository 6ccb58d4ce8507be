"""From manifests and matches to findings: which frameworks are in use, which are only declared, and what plays which part."""

from __future__ import annotations

import re
from fnmatch import fnmatch

from msgspec import Struct, field

from .declared import Manifest
from .frameworks import FRAMEWORKS, LANGUAGES, Framework


class Finding(Struct):
    """A framework with its evidence: manifests that declare it, files that configure it, test files that use it."""

    framework: Framework
    version: str = ""
    declared: list[str] = field(default_factory=list[str])
    configured: list[str] = field(default_factory=list[str])
    used: list[str] = field(default_factory=list[str])
    plain: int = 0
    runs: str = ""
    """Name of another framework whose tests this one runs."""

    @property
    def active(self) -> bool:
        """Whether something was found that it does."""
        return bool(self.used) or (
            self.framework.kind == "runner" and bool(self.configured or self.declared)
        )


class Tree(Struct):
    """What is known of one part of a project: its files, manifests, and which files each framework's pattern was found in."""

    files: list[str]
    manifests: list[Manifest]
    matches: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    plain: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def languages(self) -> list[str]:
        """Languages with source files or manifests here, the one with most files first."""
        count = {
            name: sum(f.endswith(tuple(lang.suffixes.split())) for f in self.files)
            for name, lang in LANGUAGES.items()
        }
        return sorted(
            (name for name in LANGUAGES if count[name] or self.declares(name)),
            key=lambda name: -count[name],
        )

    def declares(self, language: str) -> bool:
        """Whether a manifest of the language is here."""
        return any(re.search(rf"(^|/)({LANGUAGES[language].manifests})$", f) for f in self.files)


def findings(tree: Tree) -> list[Finding]:
    """All frameworks found, by language and weight: what is used comes first, what is only declared last."""
    found: list[Finding] = []
    for language in tree.languages():
        rows = [
            _finding(framework, tree) for framework in FRAMEWORKS if framework.language == language
        ]
        _attribute_plain(rows, tree.plain.get(language, []))
        _attribute_running(rows)
        rows = [row for row in rows if row.used or row.declared or row.configured]
        found += sorted(rows, key=_weight)
    return found


def unclaimed(tree: Tree, found: list[Finding]) -> dict[str, int]:
    """Language -> number of test files that name no framework, where none was found that could run them."""
    claimed = {
        row.framework.language for row in found if row.active and row.framework.kind == "framework"
    }
    return {
        language: len(files)
        for language, files in tree.plain.items()
        if files and language not in claimed
    }


def _finding(framework: Framework, tree: Tree) -> Finding:
    row = Finding(framework)
    names = framework.packages.split()
    for manifest in tree.manifests:
        if not re.search(rf"(^|/)({LANGUAGES[framework.language].manifests})$", manifest.path):
            continue
        if manifest.project.lower() in names:
            row.version, row.configured = "this project itself", [manifest.path]
        for dependency in manifest.dependencies:
            if dependency.name in names:
                row.version = row.version or dependency.version
                row.declared += [manifest.path] * (manifest.path not in row.declared)
        if framework.tool and re.search(framework.tool, manifest.tools):
            row.configured.append(manifest.path)
    if framework.config:
        row.configured += [path for path in tree.files if re.search(framework.config, path)]
    tests = LANGUAGES[framework.language].tests
    matched = tree.matches.get(framework.name, [])
    row.used = [
        path
        for path in matched
        if _in(framework.files, path)
        and (re.search(tests, path) or framework.kind in ("runner", "benchmark"))
    ]
    return row


def _in(globs: tuple[str, ...], path: str) -> bool:
    return any(fnmatch(path.rpartition("/")[2], g.rpartition("/")[2]) for g in globs)


def _attribute_plain(rows: list[Finding], plain: list[str]) -> None:
    """Tests that import nothing belong to the framework that is declared or configured; in Python only pytest can run them."""
    explicit = {
        path for row in rows if row.framework.kind in ("framework", "e2e") for path in row.used
    }
    free = [path for path in plain if path not in explicit]
    takers = [
        row for row in rows if row.framework.plain and (row.declared or row.configured or row.used)
    ]
    if not takers and rows and rows[0].framework.language == "Python":
        takers = [row for row in rows if row.framework.plain]
    takers.sort(
        key=lambda row: (
            not any("/" not in p or p.endswith(".json") for p in row.configured),
            not row.declared,
            -len(row.used),
        )
    )
    if takers and free:
        takers[0].used += free
        takers[0].plain = len(free)


def _attribute_running(rows: list[Finding]) -> None:
    """A framework that is set up but named in no test runs those of the framework that comes with the language."""
    idle = [
        row
        for row in rows
        if row.framework.plain
        and row.framework.kind == "framework"
        and (row.declared or row.configured)
    ]
    standard = [
        row
        for row in rows
        if row.framework.standard and row.used and row.framework.kind == "framework"
    ]
    for row in idle:
        if not row.used and standard and row.framework.language == "Python":
            row.used, row.runs = list(standard[0].used), standard[0].framework.name


def _weight(row: Finding) -> tuple[int, int, int]:
    kinds = ("framework", "e2e", "library", "runner", "benchmark")
    sure = row.declared or row.configured
    return (
        kinds.index(row.framework.kind) if row.active else 9,
        0 if sure and row.used else 1,
        -len(row.used),
    )
