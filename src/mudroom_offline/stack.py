"""Intent: a project's technology stack: languages, dependencies, build tools and package managers."""

from __future__ import annotations

import re

from .evidence import Tree
from .frameworks import LANGUAGES
from .places import exclusions, scopes
from .plan import Means, Plan, Request, Tongue
from .reading import table
from .testing import survey

_TOOLS = {
    "package manager": {
        "uv": r"uv\.lock",
        "Poetry": r"poetry\.lock",
        "PDM": r"pdm\.lock",
        "Pipenv": r"Pipfile(\.lock)?",
        "pip": r"requirements[\w.-]*\.txt",
        "conda": r"environment\.ya?ml",
        "npm": r"package-lock\.json",
        "Yarn": r"yarn\.lock",
        "pnpm": r"pnpm-(lock|workspace)\.yaml",
        "Bun": r"bun\.lockb?",
        "Cargo": r"Cargo\.toml",
        "Go modules": r"go\.mod",
        "Bundler": r"Gemfile",
        "Composer": r"composer\.json",
        "Mix": r"mix\.exs",
        "NuGet": r"[^/]+\.[cf]sproj",
        "SwiftPM": r"Package\.swift",
        "pub": r"pubspec\.yaml",
        "vcpkg": r"vcpkg\.json",
        "Conan": r"conanfile\.(txt|py)",
    },
    "build tool": {
        "Maven": r"pom\.xml",
        "Gradle": r"build\.gradle(\.kts)?",
        "sbt": r"build\.sbt",
        "CMake": r"CMakeLists\.txt",
        "Meson": r"meson\.build",
        "Make": r"(GNUm|M|m)akefile",
        "Bazel": r"(WORKSPACE|MODULE|BUILD)\.bazel",
        "just": r"[Jj]ustfile",
        "Vite": r"vite\.config\.\w+",
        "webpack": r"webpack\.config\.\w+",
        "Rollup": r"rollup\.config\.\w+",
        "Turborepo": r"turbo\.json",
        "Nx": r"nx\.json",
        "Lerna": r"lerna\.json",
        "TypeScript compiler": r"tsconfig\.json",
        "setuptools": r"setup\.(py|cfg)",
        "tox": r"tox\.ini",
        "nox": r"noxfile\.py",
    },
    "containers": {
        "Docker": r"(Dockerfile|docker-compose\.ya?ml|compose\.ya?ml)",
    },
}
_BACKENDS = {
    "hatchling": "Hatchling",
    "setuptools": "setuptools",
    "poetry.core": "Poetry",
    "flit_core": "Flit",
    "pdm.backend": "PDM",
    "maturin": "maturin",
    "mesonpy": "meson-python",
    "scikit_build_core": "scikit-build-core",
    "uv_build": "uv",
}
_MOST = 25
_ASPECTS = {"package manager": "包管理", "build tool": "构建工具", "containers": "容器"}


def investigate(request: Request, means: Means) -> Plan:
    """Read the manifests, and tell what they declare."""
    if lacking := means.without("read", "grep", "glob"):
        return lacking
    wanted, without = scopes(request.text) or [""], exclusions(request.text)
    parts: list[str] = []
    for scope in wanted:
        tree = yield from survey(scope, without)
        parts.append((f"### {scope}\n" if len(wanted) > 1 else "") + describe(tree, means.say))
    return "\n\n".join(parts)


def describe(tree: Tree, say: Tongue) -> str:
    """Languages, tools and dependencies as tables."""
    rows = [
        (say("Language", "语言"), name, say(f"{n} files", f"{n} 个文件"))
        for name, n in _languages(tree)
    ]
    for aspect, name, pattern in (
        (aspect, *entry) for aspect, entries in _TOOLS.items() for entry in entries.items()
    ):
        evidence = [f for f in tree.files if re.fullmatch(pattern, f.rpartition("/")[2])]
        if evidence:
            rows.append((say(aspect.capitalize(), _ASPECTS[aspect]), name, _files(evidence)))
    for manifest in tree.manifests:
        if manifest.path.endswith("pyproject.toml"):
            rows += [
                (say("Build backend", "构建后端"), shown, f"`{manifest.path}`")
                for name, shown in _BACKENDS.items()
                if name in manifest.tools.split("[tool")[-1]
            ]
    if not rows:
        return say("No source files and no manifests were found.", "没有找到源代码文件和清单文件。")
    lead = say("The technology stack:", "技术栈:")
    return "\n\n".join(
        [
            lead
            + "\n\n"
            + table((say("Aspect", "方面"), say("Found", "结果"), say("Evidence", "依据")), rows),
            _dependencies(tree, say),
        ]
    )


def _languages(tree: Tree) -> list[tuple[str, int]]:
    count = {
        name: sum(f.endswith(tuple(lang.suffixes.split())) for f in tree.files)
        for name, lang in LANGUAGES.items()
    }
    typed = sum(f.endswith((".ts", ".tsx", ".mts", ".cts")) for f in tree.files)
    if typed:
        count["TypeScript"], count["JavaScript"] = typed, count["JavaScript"] - typed
    return sorted(((name, n) for name, n in count.items() if n), key=lambda pair: -pair[1])


def _files(files: list[str]) -> str:
    return ", ".join(f"`{f}`" for f in files[:3]) + ", …" * (len(files) > 3)


def _dependencies(tree: Tree, say: Tongue) -> str:
    inside = {m.project.lower() for m in tree.manifests if m.project}
    seen: dict[tuple[str, bool], tuple[str, str]] = {}
    sources = {m.path.removesuffix(".in") for m in tree.manifests if m.path.endswith(".in")}
    for manifest in tree.manifests:
        if manifest.path.removesuffix(".txt") in sources:  # a lock file of the list beside it
            continue
        for dependency in manifest.dependencies:
            if dependency.name.lower() not in inside:
                seen.setdefault(
                    (dependency.name, dependency.dev), (dependency.version, manifest.path)
                )
    runtime = {name: found for (name, dev), found in seen.items() if not dev}
    extra = {name: found for (name, dev), found in seen.items() if dev and name not in runtime}
    if not seen:
        return say("No dependencies are declared.", "没有声明任何依赖。")
    parts = [
        _listed(say("Dependencies", "依赖"), runtime, say),
        _listed(say("Development and optional dependencies", "开发及可选依赖"), extra, say),
    ]
    return "\n\n".join(part for part in parts if part)


def _listed(title: str, found: dict[str, tuple[str, str]], say: Tongue) -> str:
    if not found:
        return ""
    rows = [
        (name, version or say("any", "未限定"), f"`{path}`")
        for name, (version, path) in list(found.items())[:_MOST]
    ]
    more = (
        say(f"\n\n… and {len(found) - _MOST} more.", f"\n\n……另有 {len(found) - _MOST} 个。")
        if len(found) > _MOST
        else ""
    )
    return (
        f"**{title}** ({len(found)})\n\n"
        + table((say("Name", "名称"), say("Version", "版本"), say("Declared in", "声明于")), rows)
        + more
    )
