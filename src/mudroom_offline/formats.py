"""Reading manifests that have a grammar of their own: TOML, JSON, INI and Python's lists of requirements."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

from .declared import Dependency, Manifest

_REQUIREMENT = re.compile(
    r"^\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*\(?\s*((?:[<>=!~^]=?=?\s*[\w.*+!-]+\s*,?\s*)*)"
)


def _requirement(line: str, dev: bool = False) -> Iterator[Dependency]:
    if m := _REQUIREMENT.match(line.partition(";")[0].partition(" #")[0]):
        yield Dependency(m[1].lower(), re.sub(r"\s+", "", m[2]).rstrip(","), dev)


def _toml(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


def pyproject(text: str, found: Manifest) -> None:
    """pyproject.toml, Pipfile."""
    data = _toml(text)
    project, tool = data.get("project", {}), data.get("tool", {})
    poetry = tool.get("poetry", {})
    found.project = str(project.get("name") or poetry.get("name") or "")
    lists = [(project.get("dependencies", []), False)]
    lists += [
        (v, True)
        for v in [
            *project.get("optional-dependencies", {}).values(),
            *data.get("dependency-groups", {}).values(),
        ]
    ]
    lists += [(v, True) for v in tool.get("pdm", {}).get("dev-dependencies", {}).values()]
    lists += [
        (tool.get("uv", {}).get("dev-dependencies", []), True),
        (tool.get("flit", {}).get("metadata", {}).get("requires", []), False),
    ]
    envs = tool.get("hatch", {}).get("envs", {}).values()
    lists += [
        ([*env.get("dependencies", []), *env.get("extra-dependencies", [])], True) for env in envs
    ]
    for lines, dev in lists:
        found.dependencies += [
            d for line in lines if isinstance(line, str) for d in _requirement(line, dev)
        ]
    groups = [g.get("dependencies", {}) for g in poetry.get("group", {}).values()]
    tables = [
        (data.get("packages", {}), False),
        (data.get("dev-packages", {}), True),
        (poetry.get("dependencies", {}), False),
        (poetry.get("dev-dependencies", {}), True),
        *((g, True) for g in groups),
    ]
    for entries, dev in tables:
        found.dependencies += [
            Dependency(k.lower(), _version(v), dev) for k, v in entries.items() if k != "python"
        ]
    backend = str(data.get("build-system", {}).get("build-backend", ""))
    found.tools = " ".join(
        [
            *(f"[tool.{k}]" for k in tool),
            str(envs and list(envs)),
            backend,
            "[tool.tox]" if "tox" in tool else "",
        ]
    )


def _version(value: Any) -> str:
    got: Any = (
        cast("dict[str, Any]", value).get("version", "") if isinstance(value, dict) else value
    )
    return got if isinstance(got, str) and got != "*" else ""


def _json(text: str) -> dict[str, dict[str, Any]]:
    """The tables of a JSON object; a value that is none is an empty one."""
    data: Any = json.loads(text)
    return {key: value if isinstance(value, dict) else {} for key, value in data.items()}


def _project(text: str) -> str:
    return str(json.loads(text).get("name") or "")


def requirements(text: str, found: Manifest) -> None:
    """Requirement files of pip."""
    lines = [line for line in text.split("\n") if re.match(r"\s*[A-Za-z]", line)]
    dev = not re.search(r"(?:^|/)requirements\.txt$", found.path)
    found.dependencies = [d for line in lines for d in _requirement(line, dev)]


def ini(text: str, found: Manifest) -> None:
    """setup.cfg and tox.ini."""
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
    found.dependencies = [
        d for line, dev in lines if line and line[0].isalpha() for d in _requirement(line, dev)
    ]


def python(text: str, found: Manifest) -> None:
    """setup.py and noxfile.py, read but never run."""
    code = re.sub(r"(?m)#.*$", "", text)
    name = re.search(r"""\bname\s*=\s*["']([\w.-]+)["']""", code)
    found.project = name[1] if name else ""
    found.tools = "[tool.nox]" if re.search(r"(?m)^(?:import|from) nox\b", code) else ""
    lists = r"""(?s)\b(\w*require\w*|\w*deps\w*|dependencies|install)\s*(?:=\s*|\(\s*)([\[{("'].*?)(?:\n\s*\n|\n\s*\w+\s*=|\Z)"""
    for m in re.finditer(lists, code):
        for text_ in re.findall(r"""["']([A-Za-z][^"'\n]*)["'](?!\s*:)""", m[2]):
            found.dependencies += _requirement(
                text_, bool(re.search("extra|test|dev|install$", m[1]))
            )


def package(text: str, found: Manifest) -> None:
    """package.json."""
    data, found.project = _json(text), _project(text)
    kinds = (
        ("dependencies", False),
        ("peerDependencies", False),
        ("optionalDependencies", False),
        ("devDependencies", True),
    )
    found.dependencies = [
        Dependency(k, _version(v), dev)
        for kind, dev in kinds
        for k, v in data.get(kind, {}).items()
    ]
    scripts = [
        str(v)
        for k, v in data.get("scripts", {}).items()
        if re.match(r"(?:pre|post)?(?:test|unit|e2e|ci|bench|coverage)", k)
    ]
    keys = [f"[{k}]" for k in ("jest", "ava", "mocha", "tap", "vitest") if k in data]
    found.tools = " ".join([*scripts, *keys])


def cargo(text: str, found: Manifest) -> None:
    """Cargo.toml."""
    data = _toml(text)
    found.project = str(data.get("package", {}).get("name", ""))
    tables = [data, data.get("workspace", {}), *data.get("target", {}).values()]
    for kind, dev in (
        ("dependencies", False),
        ("dev-dependencies", True),
        ("build-dependencies", True),
    ):
        found.dependencies += [
            Dependency(k, _version(v), dev) for t in tables for k, v in t.get(kind, {}).items()
        ]


def composer(text: str, found: Manifest) -> None:
    """composer.json."""
    data, found.project = _json(text), _project(text)
    found.dependencies = [
        Dependency(k, str(v), dev)
        for kind, dev in (("require", False), ("require-dev", True))
        for k, v in data.get(kind, {}).items()
    ]


def pubspec(text: str, found: Manifest) -> None:
    """pubspec.yaml."""
    name = re.search(r"(?m)^name:\s*(\S+)", text)
    found.project = name[1] if name else ""
    for section, body in re.findall(
        r"(?ms)^(dev_dependencies|dependencies):\s*\n(.*?)(?=^\S|\Z)", text
    ):
        entries = re.findall(r"(?m)^  (\w+):[ \t]*([^\n#{]*)", body)
        found.dependencies += [
            Dependency(k, v.strip(), section.startswith("dev")) for k, v in entries
        ]
