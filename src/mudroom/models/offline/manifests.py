"""What a manifest declares: its project's name, dependencies with version constraints, and tools configured in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct, field

NAMES = (
    "pyproject.toml setup.py setup.cfg tox.ini noxfile.py Pipfile requirements*.txt package.json deno.json go.mod Cargo.toml pom.xml "
    "build.gradle build.gradle.kts libs.versions.toml Gemfile *.gemspec composer.json *.csproj *.fsproj Directory.Packages.props "
    "mix.exs CMakeLists.txt meson.build vcpkg.json conanfile.txt Package.swift pubspec.yaml build.sbt cpanfile *.cabal"
).split()

_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*\(?\s*((?:[<>=!~^]=?=?\s*[\w.*+!-]+\s*,?\s*)*)")


class Dependency(Struct, frozen=True):
    """A name and its version constraint ("" if there is none); `dev` when it is not needed to run."""

    name: str
    version: str = ""
    dev: bool = False


class Manifest(Struct):
    """What one manifest says."""

    path: str
    project: str = ""
    dependencies: list[Dependency] = field(default_factory=list[Dependency])
    tools: str = ""
    """Names of configured tools and test commands, as one text to search in."""


def parse(path: str, text: str) -> Manifest:
    """Read a manifest; one that is broken declares nothing."""
    name = path.rpartition("/")[2]
    reader = next((read for pattern, read in _READERS if re.fullmatch(pattern, name)), None)
    found = Manifest(path)
    if reader:
        try:
            reader(text, found)
        except (ValueError, TypeError, AttributeError, KeyError):
            found.dependencies.clear()
    return found


def _requirement(line: str, dev: bool = False) -> Iterator[Dependency]:
    if m := _REQUIREMENT.match(line.partition(";")[0].partition(" #")[0]):
        yield Dependency(m[1].lower(), re.sub(r"\s+", "", m[2]).rstrip(","), dev)


def _toml(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


def _pyproject(text: str, found: Manifest) -> None:
    data = _toml(text)
    project, tool = data.get("project", {}), data.get("tool", {})
    poetry = tool.get("poetry", {})
    found.project = str(project.get("name") or poetry.get("name") or "")
    lists = [(project.get("dependencies", []), False)]
    lists += [(v, True) for v in [*project.get("optional-dependencies", {}).values(), *data.get("dependency-groups", {}).values()]]
    lists += [(v, True) for v in tool.get("pdm", {}).get("dev-dependencies", {}).values()]
    lists += [(tool.get("uv", {}).get("dev-dependencies", []), True), (tool.get("flit", {}).get("metadata", {}).get("requires", []), False)]
    envs = tool.get("hatch", {}).get("envs", {}).values()
    lists += [([*env.get("dependencies", []), *env.get("extra-dependencies", [])], True) for env in envs]
    for lines, dev in lists:
        found.dependencies += [d for line in lines if isinstance(line, str) for d in _requirement(line, dev)]
    groups = [g.get("dependencies", {}) for g in poetry.get("group", {}).values()]
    tables = [(poetry.get("dependencies", {}), False), (poetry.get("dev-dependencies", {}), True), *((g, True) for g in groups)]
    for entries, dev in tables:
        found.dependencies += [Dependency(k.lower(), _version(v), dev) for k, v in entries.items() if k != "python"]
    backend = str(data.get("build-system", {}).get("build-backend", ""))
    found.tools = " ".join([*(f"[tool.{k}]" for k in tool), str(envs and list(envs)), backend, "[tool.tox]" if "tox" in tool else ""])


def _version(value: Any) -> str:
    got = value.get("version", "") if isinstance(value, dict) else value  # pyright: ignore[reportUnknownVariableType]
    return str(got) if isinstance(got, str) and got != "*" else ""


def _requirements(text: str, found: Manifest) -> None:
    lines = [line for line in text.split("\n") if re.match(r"\s*[A-Za-z]", line)]
    dev = not re.search(r"(?:^|/)requirements\.txt$", found.path)
    found.dependencies = [d for line in lines for d in _requirement(line, dev)]


def _ini(text: str, found: Manifest) -> None:
    found.tools = (
        " ".join(re.findall(r"(?m)^\[[\w:.-]+\]", text))
        + " "
        + " ".join(re.findall(r"(?m)^\s*(?:commands\s*=)?\s*(?:python -m )?\w+.*$", text))
    )
    name = re.search(r"(?m)^name\s*=\s*(\S+)", text)
    found.project = name[1] if name else ""
    entries = r"(?ms)^(?:deps|install_requires|tests_require|requires|test|tests|testing|dev)\s*=(.*?)(?=^\S|\Z)"
    lines = [
        (re.sub(r"^[\w-]+:\s*", "", x.strip()), not m[0].startswith("install_req"))
        for m in re.finditer(entries, text)
        for x in m[1].split("\n")
    ]
    found.dependencies = [d for line, dev in lines if line and line[0].isalpha() for d in _requirement(line, dev)]


def _python(text: str, found: Manifest) -> None:
    code = re.sub(r"(?m)#.*$", "", text)
    name = re.search(r"""\bname\s*=\s*["']([\w.-]+)["']""", code)
    found.project = name[1] if name else ""
    found.tools = "[tool.nox]" if re.search(r"(?m)^(?:import|from) nox\b", code) else ""
    lists = r"""(?s)\b(\w*require\w*|\w*deps\w*|dependencies|install)\s*(?:=\s*|\(\s*)([\[{("'].*?)(?:\n\s*\n|\n\s*\w+\s*=|\Z)"""
    for m in re.finditer(lists, code):
        for text_ in re.findall(r"""["']([A-Za-z][^"'\n]*)["']""", m[2]):
            found.dependencies += _requirement(text_, m[1] != "install_requires")


def _package(text: str, found: Manifest) -> None:
    data = json.loads(text)
    found.project = str(data.get("name", ""))
    kinds = (("dependencies", False), ("peerDependencies", False), ("optionalDependencies", False), ("devDependencies", True))
    found.dependencies = [Dependency(k, _version(v), dev) for kind, dev in kinds for k, v in (data.get(kind) or {}).items()]
    scripts = [str(v) for k, v in (data.get("scripts") or {}).items() if re.match(r"(?:pre|post)?(?:test|unit|e2e|ci|bench|coverage)", k)]
    keys = [f"[{k}]" for k in ("jest", "ava", "mocha", "tap", "vitest", "c8", "nyc", "type") if k in data]
    found.tools = " ".join(
        [
            *scripts,
            *keys,
            f"type={data.get('type', 'commonjs')}",
            str(data.get("packageManager", "")),
            "workspaces" * ("workspaces" in data),
        ]
    )


def _cargo(text: str, found: Manifest) -> None:
    data = _toml(text)
    found.project = str(data.get("package", {}).get("name", ""))
    tables = [data, data.get("workspace", {}), *data.get("target", {}).values()]
    for kind, dev in (("dependencies", False), ("dev-dependencies", True), ("build-dependencies", True)):
        found.dependencies += [Dependency(k, _version(v), dev) for t in tables for k, v in t.get(kind, {}).items()]


def _composer(text: str, found: Manifest) -> None:
    data = json.loads(text)
    found.project = str(data.get("name", ""))
    found.dependencies = [
        Dependency(k, str(v), dev) for kind, dev in (("require", False), ("require-dev", True)) for k, v in (data.get(kind) or {}).items()
    ]


def _pubspec(text: str, found: Manifest) -> None:
    name = re.search(r"(?m)^name:\s*(\S+)", text)
    found.project = name[1] if name else ""
    for section, body in re.findall(r"(?ms)^(dev_dependencies|dependencies):\s*\n(.*?)(?=^\S|\Z)", text):
        entries = re.findall(r"(?m)^  (\w+):[ \t]*([^\n#{]*)", body)
        found.dependencies += [Dependency(k, v.strip(), section.startswith("dev")) for k, v in entries]


def _pattern(expression: str, comments: str = "", project: str = "", dev: str = "") -> Callable[[str, Manifest], None]:
    """A reader by regex: groups `n` and `v` are name and version; comments are taken away first."""

    def read(text: str, found: Manifest) -> None:
        bare = re.sub(comments, "", text) if comments else text
        for m in re.finditer(expression, bare):
            parts = m.groupdict()
            found.dependencies.append(Dependency(parts["n"], (parts.get("v") or "").strip(), bool(dev and re.search(dev, m[0]))))
        named = re.search(project, bare) if project else None
        found.project = named[1] if named else ""
        found.tools = bare

    return read


_HASH, _SLASH, _XML = r"(?m)(?:^|\s)#.*$", r"(?ms)(?:^|(?<=\s))//.*?$|/\*.*?\*/", r"(?s)<!--.*?-->"
_GRADLE = r"""(?m)^\s*(?P<k>\w*[iI]mplementation|api|classpath|\w*[cC]ompile(?:Only)?|\w*[rR]untimeOnly)\W+(?:platform\()?(?:["'][\w.-]+:(?P<n>[\w.-]+)(?::(?P<v>[\w.$\{\}+-]+))?)"""
_READERS: tuple[tuple[str, Callable[[str, Manifest], None]], ...] = (
    (r"pyproject\.toml|Pipfile", _pyproject),
    (r".*requirements.*\.txt", _requirements),
    (r"setup\.cfg|tox\.ini", _ini),
    (r"setup\.py|noxfile\.py", _python),
    (r"package\.json", _package),
    (r"Cargo\.toml", _cargo),
    (r"composer\.json", _composer),
    (r"pubspec\.yaml", _pubspec),
    (r"go\.mod", _pattern(r"(?m)^(?:require)?\s+(?P<n>[\w.-]+\.[\w.-]+/\S+)\s+(?P<v>v\S+)(?!.*indirect)", project=r"(?m)^module (\S+)")),
    (
        r"pom\.xml",
        _pattern(
            r"(?s)<dependency>(?:(?!</dependency>).)*?<artifactId>(?P<n>[^<]+)</artifactId>(?:(?!</dependency>).)*?(?:<version>(?P<v>[^<]+)</version>|</dependency>)"
            r"(?:(?!</dependency>).)*",
            _XML,
            r"(?s)</parent>.*?<artifactId>([^<]+)|<artifactId>([^<]+)",
            r"<scope>test</scope>",
        ),
    ),
    (r"build\.gradle(\.kts)?", _pattern(_GRADLE, _SLASH, dev=r"^\s*\w*[tT]est")),
    (r"libs\.versions\.toml", _pattern(r"""["'][\w.-]+:(?P<n>[\w.-]+)(?::(?P<v>[\w.-]+))?["']""", _HASH)),
    (
        r"Gemfile|.*\.gemspec",
        _pattern(
            r"""(?m)(?:gem|dependency)\s*\(?["'](?P<n>[\w-]+)["'](?:\.freeze)?(?:\s*,\s*["'](?P<v>[^"']+)["'])?""",
            _HASH,
            dev=r"development",
        ),
    ),
    (
        r".*\.[cf]sproj|Directory\.Packages\.props",
        _pattern(r"""(?:PackageReference|PackageVersion)\s+(?:Include|Update)="(?P<n>[^"]+)"(?:[^>]*?Version="(?P<v>[^"]+)")?""", _XML),
    ),
    (r"mix\.exs", _pattern(r"""\{:(?P<n>\w+),\s*"(?P<v>[^"]+)".*\}""", _HASH, r"app: :(\w+)", r"only:")),
    (
        r"CMakeLists\.txt|meson\.build",
        _pattern(
            r"(?:find_package|FetchContent_Declare|pkg_check_modules|dependency)\s*\(\s*['\"]?(?P<n>\w+)['\"]?(?:\s+(?P<v>\d[\d.]*))?",
            r"(?m)#.*$",
            r"project\s*\(\s*['\"]?([\w-]+)",
        ),
    ),
    (r"vcpkg\.json|deno\.json", _pattern(r""""(?P<n>[\w@/-]+)":\s*"(?P<v>(?:npm|jsr):[^"]+)"|"dependencies":""")),
    (r"conanfile\.txt", _pattern(r"(?m)^(?P<n>[\w-]+)/(?P<v>[\w.]+)", _HASH)),
    (
        r"Package\.swift",
        _pattern(
            r"""url:\s*"[^"]*/(?P<n>[\w.-]+?)(?:\.git)?"\s*,\s*(?:\w+:\s*|\.\w+\(\s*\w*:?\s*)"(?P<v>[^"]+)""", _SLASH, r"name:\s*\"([\w-]+)"
        ),
    ),
    (r"build\.sbt|cpanfile", _pattern(r"""%%?\s*["'](?P<n>[\w-]+)["']\s*%\s*["'](?P<v>[\w.-]+)["']""", _SLASH, dev="Test")),
    (r".*\.cabal", _pattern(r"(?m)^\s*(?:build-depends:)?\s*[,]?\s*(?P<n>[a-z][\w-]*)\s*(?P<v>[<>=^][^,\n]*)?,?$")),
)
