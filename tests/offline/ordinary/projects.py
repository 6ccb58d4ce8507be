"""Three small projects in different languages, each with what is true of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

Tree = dict[str, str]


class Project(Struct, frozen=True):
    """The files of a project, the words its requests are filled with, and the facts they ask for.

    Each fact is a list of regular expressions: an answer must match all of them.
    """

    tree: Tree
    words: dict[str, str]
    module: str
    facts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


COMMON: Mapping[str, list[str]] = {
    "branch": [r"\bharbour\b"],
    "last_commit": [r"Describe the usage", r"docs/usage\.md"],
    "log": [r"Describe the usage", r"Start the project"],
    "commits": [r"\b2\b"],
    "authors": [r"Ada Kern"],
    "remote": [r"https://code\.example/project\.git"],
    "todo": [r"TODO: retry"],
}
LICENCES = {
    "MIT": "MIT License\n\nCopyright 2026 Ada Kern\n",
    "Apache-2.0": "Apache License\nVersion 2.0, January 2004\n",
    "BSD": "BSD 3-Clause License\n\nCopyright 2026 Ada Kern\n",
}
USAGE = "# Usage\n\nStart it, then wait.\n"

KETTLE = Project(
    tree={
        "pyproject.toml": (
            '[project]\nname = "kettle"\nversion = "1.4.2"\n'
            'description = "Boils water on a schedule"\nrequires-python = ">=3.11"\n'
            'license = "MIT"\nauthors = [{ name = "Ada Kern" }]\n'
            'dependencies = ["httpx>=0.27", "click>=8.1"]\n\n'
            '[dependency-groups]\ndev = ["pytest>=8.2", "ruff"]\n\n'
            '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        ),
        "README.md": (
            "# Kettle\n\nKettle boils water on a schedule.\n\n## Install\n\n"
            "```\npip install kettle\n```\n\n## Develop\n\n```\nmake build\npytest -q\n```\n"
        ),
        "LICENSE": LICENCES["MIT"],
        "Makefile": "build:\n\tpython -m build\n\ntest:\n\tpytest -q\n",
        "src/kettle/__init__.py": '"""Boils water on a schedule."""\n',
        "src/kettle/config.py": (
            '"""Settings of a kettle."""\n\n\ndef load_settings(path):\n'
            '    """Read the settings."""\n    return {"path": path}\n'
        ),
        "src/kettle/boiler.py": (
            '"""The boiler and its boiling point."""\n\n'
            "from kettle.config import load_settings\n\n\nclass Boiler:\n"
            "    def __init__(self, path):\n        # TODO: retry a cold boiler\n"
            "        self.settings = load_settings(path)\n\n    def boil(self):\n"
            "        return self.settings\n\n    def stop(self):\n        return None\n"
        ),
        "src/kettle/cli.py": '"""The command line."""\n\n\ndef main():\n    return 0\n',
        "tests/test_boiler.py": (
            "import pytest\n\nfrom kettle.boiler import Boiler\n\n\n"
            "def test_boils():\n    assert pytest and Boiler\n"
        ),
        "tests/test_config.py": "import pytest\n\n\ndef test_reads():\n    assert pytest\n",
    },
    words={
        "symbol": "load_settings",
        "file": "src/kettle/config.py",
        "folder": "src/kettle",
        "suffix": ".py",
        "language": "Python",
        "phrase": "boiling point",
        "phrase_file": "src/kettle/boiler.py",
    },
    module="string_utils.py",
    facts={
        "framework": ["pytest"],
        "stack": ["Python"],
        "runtime": [r"httpx>=0\.27", r"click>=8\.1"],
        "description": ["Boils water on a schedule"],
        "how_to_test": [r"pytest -q"],
        "licence": [r"\bMIT\b"],
        "version": [r"1\.4\.2"],
        "needs_language": [r">=3\.11"],
        "how_to_install": [r"pip install kettle"],
        "how_to_build": [r"make build|python -m build"],
        "definition": [r"src/kettle/config\.py:4:def load_settings"],
        "uses": [r"src/kettle/boiler\.py:9:.*load_settings"],
        "phrase": [r"src/kettle/boiler\.py"],
        "functions": [r"src/kettle/config\.py:4:def load_settings"],
        "symbol": [r"src/kettle/config\.py", r"4.def load_settings", "Read the settings"],
        "entry_point": [r"src/kettle/cli\.py:4:def main"],
        "show": ["def load_settings", 'return \\{"path": path\\}'],
        "readme": ["Kettle boils water on a schedule"],
        "summary": [r"config\.py.*Settings of a kettle"],
    },
)

LANTERN = Project(
    tree={
        "package.json": (
            '{\n  "name": "lantern",\n  "version": "0.9.1",\n'
            '  "description": "Routes requests by lamplight",\n  "license": "Apache-2.0",\n'
            '  "author": "Ada Kern",\n  "engines": {\n    "typescript": ">=5.2"\n  },\n'
            '  "scripts": {\n    "build": "tsc -p .",\n    "test": "vitest run"\n  },\n'
            '  "dependencies": {\n    "zod": "^3.22.0"\n  },\n'
            '  "devDependencies": {\n    "vitest": "^2.1.0",\n    "typescript": "^5.4.0"\n  }\n}\n'
        ),
        "tsconfig.json": '{ "compilerOptions": { "strict": true } }\n',
        "README.md": (
            "# Lantern\n\nLantern routes requests by lamplight.\n\n## Install\n\n"
            "    npm install lantern\n\n```sh\nnpm run build\nnpm test\n```\n"
        ),
        "LICENSE": LICENCES["Apache-2.0"],
        "src/router.ts": (
            "/** Routes and how they are read. */\nexport interface Route {\n  path: string;\n}\n\n"
            "export function parseRoute(text: string): Route {\n  return { path: text };\n}\n"
        ),
        "src/server.ts": (
            "/** Answers requests. */\nimport { parseRoute } from './router';\n\n"
            "// TODO: retry when the lamp is out\nexport class Server {\n"
            "  handle(text: string) {\n    return parseRoute(text);\n  }\n\n"
            "  close() {\n    return 'lamp is out of oil';\n  }\n}\n"
        ),
        "src/index.ts": "/** The public names. */\nexport * from './server';\n",
        "test/router.test.ts": (
            "import { expect, test } from 'vitest';\n"
            "import { parseRoute } from '../src/router';\n\n"
            "test('reads', () => expect(parseRoute('/a').path).toBe('/a'));\n"
        ),
        "test/server.test.ts": (
            "import { expect, test } from 'vitest';\ntest('x', () => expect(1).toBe(1));\n"
        ),
    },
    words={
        "symbol": "parseRoute",
        "file": "src/router.ts",
        "folder": "src",
        "suffix": ".ts",
        "language": "TypeScript",
        "phrase": "out of oil",
        "phrase_file": "src/server.ts",
    },
    module="src/stringUtils.ts",
    facts={
        "framework": ["Vitest"],
        "stack": ["TypeScript"],
        "runtime": [r"zod: \^3\.22\.0"],
        "description": ["Routes requests by lamplight"],
        "how_to_test": [r"vitest run|npm test"],
        "licence": [r"Apache-2\.0|Apache License"],
        "version": [r"0\.9\.1"],
        "needs_language": [r">=5\.2|\^5\.4\.0"],
        "how_to_install": [r"npm install lantern"],
        "how_to_build": [r"npm run build|tsc -p"],
        "definition": [r"src/router\.ts:6:export function parseRoute"],
        "uses": [r"src/server\.ts:7:.*parseRoute"],
        "phrase": [r"src/server\.ts"],
        "functions": [r"src/router\.ts:6:export function parseRoute"],
        "symbol": [r"src/router\.ts", r"7.*return \{ path: text \};"],
        "entry_point": [r"src/index\.ts"],
        "show": ["export function parseRoute", r"return \{ path: text \};"],
        "readme": ["Lantern routes requests by lamplight"],
        "summary": [r"router\.ts.*Routes and how they are read"],
    },
)

FERRY = Project(
    tree={
        "go.mod": (
            "module example.invalid/ferry\n\ngo 1.22\n\n"
            "require (\n\tgolang.org/x/sync v0.7.0\n\tgithub.com/stretchr/testify v1.9.0\n)\n"
        ),
        "README.md": (
            "# Ferry\n\nFerry moves files across slow links.\n\n## Install\n\n"
            "```sh\ngo install example.invalid/ferry@latest\n```\n\n"
            "```sh\ngo build ./...\ngo test ./...\n```\n"
        ),
        "LICENSE": LICENCES["BSD"],
        "main.go": '// Command ferry moves files.\npackage main\n\nconst version = "2.0.3"\n\n'
        "func main() {}\n",
        "internal/manifest/manifest.go": (
            "// Package manifest lists the files to move.\npackage manifest\n\n"
            "// LoadManifest reads a manifest.\nfunc LoadManifest(path string) []string {\n"
            "\treturn []string{path}\n}\n"
        ),
        "internal/manifest/manifest_test.go": (
            'package manifest\n\nimport "testing"\n\nfunc TestLoad(t *testing.T) {\n'
            '\tif len(LoadManifest("a")) != 1 {\n\t\tt.Fail()\n\t}\n}\n'
        ),
        "internal/crossing/crossing.go": (
            "// Package crossing sends the files of a manifest.\npackage crossing\n\n"
            'import "example.invalid/ferry/internal/manifest"\n\n'
            "// TODO: retry at low tide\n\n// Cross sends all files.\n"
            "func Cross(path string) int {\n\treturn len(manifest.LoadManifest(path))\n}\n\n"
            '// Tide names the tide.\nfunc Tide() string {\n\treturn "high water mark"\n}\n'
        ),
        "internal/crossing/crossing_test.go": (
            'package crossing\n\nimport "testing"\n\nfunc TestCross(t *testing.T) {}\n'
        ),
    },
    words={
        "symbol": "LoadManifest",
        "file": "internal/manifest/manifest.go",
        "folder": "internal",
        "suffix": ".go",
        "language": "Go",
        "phrase": "high water mark",
        "phrase_file": "internal/crossing/crossing.go",
    },
    module="stringutils/stringutils.go",
    facts={
        "framework": ["Go testing"],
        "stack": [r"\bGo\b"],
        "runtime": [r"golang\.org/x/sync v0\.7\.0"],
        "description": ["Ferry moves files across slow links"],
        "how_to_test": [r"go test \./\.\.\."],
        "licence": [r"BSD 3-Clause"],
        "version": [r"2\.0\.3"],
        "needs_language": [r"go 1\.22"],
        "how_to_install": [r"go install example\.invalid/ferry"],
        "how_to_build": [r"go build \./\.\.\."],
        "definition": [r"internal/manifest/manifest\.go:5:func LoadManifest"],
        "uses": [r"internal/crossing/crossing\.go:10:.*LoadManifest"],
        "phrase": [r"internal/crossing/crossing\.go"],
        "functions": [r"internal/manifest/manifest\.go:5:func LoadManifest"],
        "symbol": [r"internal/manifest/manifest\.go", r"LoadManifest reads a manifest"],
        "entry_point": [r"main\.go:6:func main"],
        "show": ["func LoadManifest", r"return \[\]string\{path\}"],
        "readme": ["Ferry moves files across slow links"],
        "summary": [r"manifest\.go.*Package manifest lists the files to move"],
    },
)

PROJECTS = {"kettle": KETTLE, "lantern": LANTERN, "ferry": FERRY}
IS_TEST = ("test_", "_test.go", ".test.ts")


def count(number: int) -> str:
    """Match a number of files or lines in a sentence or a table, in either language."""
    return rf"(?<![\d,.]){number:,}(?![\d,.]\d)(?: (?:files?|lines?)\b| ?个| ?行| \|)"


def list_facts(project: Project, key: str) -> list[str]:
    """Return the regular expressions that an answer to a request must match."""
    tree = project.tree | {"docs/usage.md": USAGE}
    words = project.words
    source = [path for path in tree if path.endswith(words["suffix"])]
    in_folder = [path for path in tree if path.startswith(words["folder"] + "/")]
    tests = [path for path in tree if any(part in path for part in IS_TEST)]
    computed = {
        "count_all": [count(len(tree) + 1)],  # draft.txt is not committed
        "count_code": [count(len(source))],
        "count_lines": [count(sum(tree[path].count("\n") for path in source))],
        "count_file": [count(tree[words["file"]].count("\n"))],
        "count_folder": [count(len(in_folder))],
        "count_tests": [count(len(tests))],
        "list_tests": [name(path) for path in tests],
        "largest": [name(max(tree, key=lambda path: len(tree[path])))],
        "longest": [name(max(source, key=lambda path: tree[path].count("\n")))],
        "list_all": [name(path) for path in tree],
        "list_folder": [name(path) for path in in_folder],
        "list_code": [name(path) for path in source],
        "status": [r"draft\.txt", r"LICENSE"],
        "two_questions": project.facts["description"] + project.facts["licence"],
    }
    return (computed | dict(COMMON) | project.facts)[key]


def name(path: str) -> str:
    """Match the last part of a path; its folder may stand once above several files."""
    return path.rpartition("/")[2].replace(".", r"\.")


def make_repository(project: Project, root: Path) -> None:
    """Write a project with two commits, one changed file and one that git does not know."""
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        **{f"GIT_{who}_NAME": "Ada Kern" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "ada@example.invalid" for who in ("AUTHOR", "COMMITTER")},
    }

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=root, env=environment, check=True, timeout=60)

    root.mkdir(parents=True)
    git("init", "--quiet", "--template=", "--initial-branch=harbour")
    git("remote", "add", "origin", "https://code.example/project.git")
    for title, tree in (
        ("Start the project", project.tree),
        ("Describe the usage", {"docs/usage.md": USAGE}),
    ):
        write_tree(tree, root)
        git("add", ".")
        git("commit", "--quiet", "-m", title)
    write_tree(
        {"LICENSE": project.tree["LICENSE"] + "All of it.\n", "draft.txt": "a draft\n"}, root
    )


def write_tree(tree: Tree, root: Path) -> None:
    """Write files below a folder."""
    for path, text in tree.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def read_tree(root: Path) -> Tree:
    """Read all files below a folder, without those of git."""
    return {
        str(path.relative_to(root)): path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(root).parts
    }
