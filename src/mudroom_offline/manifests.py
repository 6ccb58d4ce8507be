"""Which files are manifests, and what each of them declares."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatch

from . import formats
from .declared import Dependency, Manifest

_NAMES = (
    "pyproject.toml setup.py setup.cfg tox.ini noxfile.py Pipfile requirements*.txt package.json deno.json go.mod Cargo.toml "
    "pom.xml build.gradle build.gradle.kts libs.versions.toml Gemfile *.gemspec composer.json *.csproj *.fsproj "
    "Directory.Packages.props mix.exs CMakeLists.txt meson.build vcpkg.json conanfile.txt Package.swift pubspec.yaml build.sbt "
    "cpanfile *.cabal"
)
NAMES = tuple(_NAMES.split())


def is_manifest(path: str) -> bool:
    """Whether the file declares what a project needs."""
    return bool(re.search(r"(^|/)requirements/[^/]+\.(txt|in)$", path)) or any(
        fnmatch(path.rpartition("/")[2], name) for name in NAMES
    )


def is_lock(path: str) -> bool:
    """Whether it is a list of pinned requirements: long, because of the hashes in it, with one line a name."""
    return path.endswith(".txt")


def parse(path: str, text: str) -> Manifest:
    """Read a manifest; one that is broken declares nothing."""
    found = Manifest(path)
    reader = next(
        (read for pattern, read in _READERS if re.search(rf"(?:^|/)(?:{pattern})$", path)), None
    )
    if reader:
        try:
            reader(text, found)
        except (ValueError, TypeError, AttributeError, KeyError):
            found.dependencies.clear()
    return found


def _pattern(
    expression: str, comments: str = "", project: str = "", dev: str = ""
) -> Callable[[str, Manifest], None]:
    """A reader by regex: groups `n` and `v` are name and version; comments are taken away first."""

    def read(text: str, found: Manifest) -> None:
        bare = re.sub(comments, "", text) if comments else text
        for m in re.finditer(expression, bare):
            parts = m.groupdict()
            found.dependencies.append(
                Dependency(
                    parts["n"], (parts.get("v") or "").strip(), bool(dev and re.search(dev, m[0]))
                )
            )
        named = re.search(project, bare) if project else None
        found.project = named[1] if named else ""
        found.tools = bare

    return read


_HASH, _SLASH, _XML = r"(?m)(?:^|\s)#.*$", r"(?ms)(?:^|(?<=\s))//.*?$|/\*.*?\*/", r"(?s)<!--.*?-->"
_GRADLE = (
    r"(?m)^\s*(?:\w*[iI]mplementation|api|classpath|\w*[cC]ompile(?:Only)?|\w*[rR]untimeOnly)\W+(?:platform\()?"
    r"""["'][\w.-]+:(?P<n>[\w.-]+)(?::(?P<v>[\w.$\{\}+-]+))?"""
)
_READERS: tuple[tuple[str, Callable[[str, Manifest], None]], ...] = (
    (r"pyproject\.toml|Pipfile", formats.pyproject),
    (r"[^/]*requirements[^/]*\.txt|requirements/[^/]+\.(?:txt|in)", formats.requirements),
    (r"setup\.cfg|tox\.ini", formats.ini),
    (r"setup\.py|noxfile\.py", formats.python),
    (r"package\.json", formats.package),
    (r"Cargo\.toml", formats.cargo),
    (r"composer\.json", formats.composer),
    (r"pubspec\.yaml", formats.pubspec),
    (
        r"go\.mod",
        _pattern(
            r"(?m)^(?:require)?\s+(?P<n>[\w.-]+\.[\w.-]+/\S+)\s+(?P<v>v\S+)(?!.*indirect)",
            project=r"(?m)^module (\S+)",
        ),
    ),
    (
        r"pom\.xml",
        _pattern(
            r"(?s)<dependency>(?:(?!</dependency>).)*?<artifactId>(?P<n>[^<]+)</artifactId>(?:(?!</dependency>).)*?(?:<version>(?P<v>[^<]+)</version>|</dependency>)"
            r"(?:(?!</dependency>).)*",
            r"(?s)<!--.*?-->|<parent>.*?</parent>",
            r"<artifactId>([^<]+)",
            r"<scope>test</scope>",
        ),
    ),
    (r"build\.gradle(\.kts)?", _pattern(_GRADLE, _SLASH, dev=r"^\s*\w*[tT]est")),
    (
        r"libs\.versions\.toml",
        _pattern(r"""["'][\w.-]+:(?P<n>[\w.-]+)(?::(?P<v>[\w.-]+))?["']""", _HASH),
    ),
    (
        r"Gemfile|[^/]*\.gemspec",
        _pattern(
            r"""(?m)(?:gem|dependency)\s*\(?["'](?P<n>[\w-]+)["'](?:\.freeze)?(?:\s*,\s*["'](?P<v>[^"']+)["'])?""",
            _HASH,
            dev=r"development",
        ),
    ),
    (
        r"[^/]*\.[cf]sproj|Directory\.Packages\.props",
        _pattern(
            r"""(?:PackageReference|PackageVersion)\s+(?:Include|Update)="(?P<n>[^"]+)"(?:[^>]*?Version="(?P<v>[^"]+)")?""",
            _XML,
        ),
    ),
    (
        r"mix\.exs",
        _pattern(r"""\{:(?P<n>\w+),\s*"(?P<v>[^"]+)".*\}""", _HASH, r"app: :(\w+)", r"only:"),
    ),
    (
        r"CMakeLists\.txt|meson\.build",
        _pattern(
            r"(?:find_package|FetchContent_Declare|pkg_check_modules|dependency)\s*\(\s*['\"]?(?P<n>\w+)['\"]?(?:\s+(?P<v>\d[\d.]*))?",
            r"(?m)#.*$",
            r"project\s*\(\s*['\"]?([\w-]+)",
        ),
    ),
    (
        r"vcpkg\.json|deno\.json",
        _pattern(r""""(?P<n>[\w@/-]+)":\s*"(?P<v>(?:npm|jsr):[^"]+)"|"dependencies":"""),
    ),
    (r"conanfile\.txt", _pattern(r"(?m)^(?P<n>[\w-]+)/(?P<v>[\w.]+)", _HASH)),
    (
        r"Package\.swift",
        _pattern(
            r"""url:\s*"[^"]*/(?P<n>[\w.-]+?)(?:\.git)?"\s*,\s*(?:\w+:\s*|\.\w+\(\s*\w*:?\s*)"(?P<v>[^"]+)""",
            _SLASH,
            r"name:\s*\"([\w-]+)",
        ),
    ),
    (
        r"build\.sbt|cpanfile",
        _pattern(
            r"""%%?\s*["'](?P<n>[\w-]+)["']\s*%\s*["'](?P<v>[\w.-]+)["']""", _SLASH, dev="Test"
        ),
    ),
    (
        r"[^/]*\.cabal",
        _pattern(
            r"(?m)^\s*(?:build-depends:)?\s*[,]?\s*(?P<n>[a-z][\w-]*)\s*(?P<v>[<>=^][^,\n]*)?,?$"
        ),
    ),
)
