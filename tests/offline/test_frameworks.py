"""Detection on projects it was not written for: one tiny tree a language, a framework, a trap."""

from __future__ import annotations

import json
import re

import pytest
from tests.offline.conftest import Ask

Tree = dict[str, str]
QUESTION = "Which testing framework does this project use?"
PYTEST = "import pytest\n\n\ndef test_a():\n    assert pytest\n"
CASE = "import unittest\n\n\nclass TestA(unittest.TestCase):\n    def test_a(self):\n        pass\n"
DESCRIBE = "describe('a', () => {\n  it('works', () => {});\n});\n"


def npm(test: str = "", **dev: str) -> str:
    return json.dumps(
        {
            "name": "app",
            "scripts": {"test": test},
            "devDependencies": dev,
        }
    )


def pyproject(*dev: str, more: str = "") -> str:
    return (
        f'[project]\nname = "demo"\nkeywords = ["nose2"]\n[dependency-groups]\ndev = '
        f"{json.dumps(list(dev))}\n{more}"
    )


def js(name: str) -> str:
    return f"import {{ test }} from '{name}';\ntest('a', () => {{}});\n"


POM = (
    "<project><artifactId>demo</artifactId><dependencies><dependency><groupId>g</groupId>"
    "<artifactId>{}</artifactId><version>{}</version></dependency></dependencies></projec"
    "t>"
)
GEM = "source 'https://example.invalid'\ngem 'rake'\ngem '{}', '{}'\n"
CSPROJ = '<Project><ItemGroup><PackageReference Include="{}" Version="{}" /></ItemGroup></Project>'


def python_project(manifest: str, text: str, test: str = PYTEST) -> Tree:
    return {manifest: text, "tests/test_a.py": test}


def npm_project(test: str, path: str, text: str, **dev: str) -> Tree:
    return {"package.json": npm(test, **dev), path: text}


def go_project(*packages: str, imports: str = '"testing"') -> Tree:
    required = "".join(f"require {package}\n" for package in packages)
    test = f"package a\n\nimport {imports}\n\nfunc TestA(t *testing.T) {{}}\n"
    return {"go.mod": f"module a\n\n{required}", "a_test.go": test}


def cargo_project(more: str = "", **files: str) -> Tree:
    sources = {f"{name}/a.rs": text for name, text in files.items()}
    manifest = f'[package]\nname = "a"\n{more}'
    return {"Cargo.toml": manifest, "src/lib.rs": "#[test]\nfn a() {}\n"} | sources


def maven_project(artifact: str, version: str, imported: str) -> Tree:
    test = f"import {imported};\n"
    return {"pom.xml": POM.format(artifact, version), "src/test/java/ATest.java": test}


def gradle_project(manifest: str, dependency: str, path: str, imported: str) -> Tree:
    text = f"dependencies {{\n    testImplementation{dependency}\n}}\n"
    return {manifest: text, f"src/test/{path}": f"import {imported}\n"}


def gem_project(gem: str, version: str, path: str, text: str) -> Tree:
    return {"Gemfile": GEM.format(gem, version), path: text}


def composer_project(package: str, version: str, text: str) -> Tree:
    required = {"require-dev": {package: version}}
    return {"composer.json": json.dumps(required), "tests/ATest.php": f"<?php\n{text}\n"}


def dotnet_project(package: str, version: str, used: str) -> Tree:
    project = CSPROJ.format(package, version)
    return {"A.Tests/A.Tests.csproj": project, "A.Tests/ATests.cs": f"using {used};\n"}


def cmake_project(included: str, more: str = "") -> Tree:
    return {"CMakeLists.txt": f"project(demo)\n{more}", "tests/a.cpp": f"#include {included}\n"}


SETUP = "from setuptools import setup\nsetup(name='d'{})\n"
POETRY = '[tool.poetry]\nname = "d"\n[tool.poetry.group.dev.dependencies]\npytest = "^8.0"\n'
TOX = "[tox]\nenvlist = py\n[testenv]\ndeps =\n    pytest>=5\ncommands = pytest\n"
NOX = "import nox\n\n\n@nox.session\ndef tests(session):\n    session.install('pytest')\n"
CRATES = '[dev-dependencies]\nproptest = "1.4"\ncriterion = { version = "0.5" }\n'
TESTIFY = '(\n\t"testing"\n\t"github.com/stretchr/testify/assert"\n)'
CTEST = "enable_testing()\nadd_test(NAME a COMMAND a)\nfind_package(GTest 1.14 REQUIRED)\n"
DART = "name: a\ndev_dependencies:\n  test: ^1.25.0\n"
JUNIT = "org.junit.jupiter"

TREES: dict[str, tuple[Tree, list[str], str]] = {
    "pytest": (python_project("pyproject.toml", pyproject("pytest>=8.1")), ["pytest"], ">=8.1"),
    "a lock": (
        python_project("requirements/dev.txt", "pytest==9.0.2 \\\n    --hash=sha256:00\n"),
        ["pytest"],
        "==9.0.2",
    ),
    "setup.py": (
        python_project("setup.py", SETUP.format(", extras_require={'test': ['pytest>=6']}")),
        ["pytest"],
        "",
    ),
    "tox": (python_project("tox.ini", TOX), ["pytest", "tox"], ""),
    "poetry": (python_project("pyproject.toml", POETRY), ["pytest"], "^8.0"),
    "pipenv": (
        python_project("Pipfile", '[dev-packages]\npytest = "~=8.0"\n'),
        ["pytest"],
        "~=8.0",
    ),
    "unittest": (python_project("setup.py", SETUP.format(""), CASE), ["unittest"], ""),
    "nox": (python_project("noxfile.py", NOX), ["pytest", "nox"], ""),
    "robot": (
        {
            "requirements.txt": "robotframework==7.0\n",
            "tests/a.robot": "*** Test Cases ***\nA\n    Log    hi\n",
        },
        ["Robot Framework"],
        "==7.0",
    ),
    "jest": (npm_project("jest", "src/a.test.js", DESCRIBE, jest="^29.0.0"), ["Jest"], "^29.0.0"),
    "vitest": (
        npm_project("vitest run", "src/a.test.ts", js("vitest"), vitest="^2.1.0"),
        ["Vitest"],
        "^2.1.0",
    ),
    "mocha and chai": (
        npm_project("mocha", "test/a.js", f"{js('chai')}{DESCRIBE}", mocha="^10.0.0", chai="^5"),
        ["Mocha", "Chai"],
        "^10.0.0",
    ),
    "jasmine and karma": (
        npm_project(
            "karma start",
            "src/a.spec.ts",
            DESCRIBE,
            **{"jasmine-core": "~5.1.0", "karma": "~6.4.0"},
        )
        | {"karma.conf.js": "module.exports = () => {};\n"},
        ["Karma", "Jasmine"],
        "~5.1.0",
    ),
    "node:test": (npm_project("node --test", "test/a.mjs", js("node:test")), ["node:test"], ""),
    "playwright": (
        npm_project(
            "playwright test",
            "e2e/a.spec.ts",
            js("@playwright/test"),
            **{"@playwright/test": "^1.40.0"},
        ),
        ["Playwright"],
        "^1.40.0",
    ),
    "go": (go_project(), ["Go testing"], ""),
    "testify": (
        go_project("github.com/stretchr/testify v1.9.0", imports=TESTIFY),
        ["Go testing", "Testify"],
        "v1.9.0",
    ),
    "rust": (cargo_project(), ["cargo test"], ""),
    "proptest and criterion": (
        cargo_project(
            CRATES, tests="use proptest::prelude::*;\n", benches="use criterion::Criterion;\n"
        ),
        ["cargo test", "proptest", "Criterion"],
        "0.5",
    ),
    "junit 5": (
        maven_project("junit-jupiter", "5.10.0", f"{JUNIT}.api.Test"),
        ["JUnit Jupiter"],
        "5.10.0",
    ),
    "gradle in Kotlin": (
        gradle_project(
            "build.gradle.kts",
            f'("{JUNIT}:junit-jupiter:5.11.1")\n    // testImplementation("junit:junit:4.12")',
            "kotlin/ATest.kt",
            f"{JUNIT}.api.Test",
        ),
        ["JUnit Jupiter"],
        "5.11.1",
    ),
    "spock": (
        gradle_project(
            "build.gradle",
            " 'org.spockframework:spock-core:2.3-groovy-4.0'",
            "groovy/ASpec.groovy",
            "spock.lang.Specification",
        ),
        ["Spock"],
        "2.3-groovy-4.0",
    ),
    "rspec": (
        gem_project("rspec", "~> 3.12", "spec/a_spec.rb", "RSpec.describe 'a' do\nend\n"),
        ["RSpec"],
        "~> 3.12",
    ),
    "phpunit": (
        composer_project("phpunit/phpunit", "^10.5", "use PHPUnit\\Framework\\TestCase;"),
        ["PHPUnit"],
        "^10.5",
    ),
    "pest": (
        composer_project("pestphp/pest", "^2.0", "\nit('works', function () {});"),
        ["Pest"],
        "^2.0",
    ),
    "xunit": (dotnet_project("xunit", "2.6.0", "Xunit"), ["xUnit.net"], "2.6.0"),
    "exunit": (
        {
            "mix.exs": "defmodule A.MixProject do\nend\n",
            "test/a_test.exs": "defmodule ATest do\n  use ExUnit.Case, async: true\nend\n",
        },
        ["ExUnit"],
        "",
    ),
    "gtest and ctest": (cmake_project("<gtest/gtest.h>", CTEST), ["GoogleTest", "CTest"], ""),
    "xctest": (
        {
            "Package.swift": 'let package = Package(name: "A")\n',
            "Tests/ATests/ATests.swift": "import XCTest\n",
        },
        ["XCTest"],
        "",
    ),
    "dart": (
        {"pubspec.yaml": DART, "test/a_test.dart": "import 'package:test/test.dart';\n"},
        ["test"],
        "^1.25.0",
    ),
}


def read_rows(text: str) -> dict[str, str]:
    """Return names and evidence of a table."""
    rows = re.finditer(r"(?m)^\| \*\*(.+?)\*\* \| .+? \| (.+) \|$", text)
    return {row[1]: row[2] for row in rows}


@pytest.mark.parametrize("name", TREES)
async def test_finds_the_framework(ask: Ask, name: str) -> None:
    tree, expected, version = TREES[name]
    report = await ask(tree, QUESTION)
    rows = read_rows(report.text)
    assert sorted(rows) == sorted(expected), report.text
    assert version in " ".join(rows.values()), report.text
    assert re.search("that look like its use|a configuration file", rows[expected[0]])
    assert report.ok


TRAPS: dict[str, tuple[dict[str, str], list[str]]] = {
    "only in the docs": (
        {
            "README.md": "Run `pytest`, or import pytest.\n",
            "docs/testing.md": "import pytest\n",
            "a.py": "x = 1\n",
        },
        [],
    ),
    "only in a comment and a keyword": (
        {"pyproject.toml": pyproject(more="# pytest>=8\n"), "a.py": "# import pytest\nx = 1\n"},
        [],
    ),
    "only in a comment of TypeScript": (
        {
            "package.json": "{}",
            "a.ts": "/**\n * Pass `jest.fn()` or `vi.fn()`.\n */\n// jest.fn()\n",
        },
        [],
    ),
    "only in node_modules": (
        {
            "package.json": npm(),
            "a.js": "1\n",
            "node_modules/b/package.json": npm("jest", jest="1"),
            "node_modules/b/a.test.js": DESCRIBE,
        },
        [],
    ),
    "only in a fixture": (
        {
            "a.py": "x = 1\n",
            "tests/fixtures/p/test_a.py": PYTEST,
            "tests/fixtures/p/pyproject.toml": pyproject("pytest"),
        },
        [],
    ),
    "only vendored": (
        {
            "go.mod": "module a\n",
            "a.go": "package a\n",
            "vendor/b/b_test.go": "package b\n\nfunc TestB(t *testing.T) {}\n",
        },
        [],
    ),
    "a test_ file that is no test": (
        {"test_connection.py": "import socket\n\nsocket.create_connection(('a', 1))\n"},
        [],
    ),
    "an empty tests folder": ({"tests/__init__.py": "", "a.py": "x = 1\n"}, []),
    "nothing at all": ({"notes.txt": "hello\n"}, []),
    "a mock outside of a test": ({"a.py": "from unittest import mock\n"}, []),
}


@pytest.mark.parametrize("name", TRAPS)
async def test_finds_none_where_there_is_none(ask: Ask, name: str) -> None:
    tree, expected = TRAPS[name]
    report = await ask(tree, QUESTION)
    assert list(read_rows(report.text)) == expected, report.text
    assert "**No testing framework** was recognised in this folder." in report.text


async def test_says_when_a_framework_is_only_declared(ask: Ask) -> None:
    report = await ask({"pyproject.toml": pyproject("pytest>=8"), "a.py": "x = 1\n"}, QUESTION)
    assert report.text.startswith("Signs of these testing frameworks and tools were seen in this")
    listed = "listed in manifests: `pytest>=8` (`pyproject.toml` dependency-groups/dev)"
    assert read_rows(report.text)["pytest"] == listed


async def test_unittest_classes_run_by_pytest(ask: Ask) -> None:
    tree = {
        "pyproject.toml": pyproject("pytest>=8", more="[tool.pytest.ini_options]\n"),
        "tests/test_a.py": CASE,
        "tests/test_b.py": CASE,
    }
    rows = read_rows((await ask(tree, QUESTION)).text)
    assert list(rows) == ["unittest", "pytest"]
    assert "a configuration file, settings or a command: `pyproject.toml`" in rows["pytest"]
    assert "look like its use in 2 files: `tests/test_a.py`," in rows["unittest"]


async def test_the_lesson_s_example_two_frameworks(ask: Ask) -> None:
    tree = {
        "pyproject.toml": pyproject("pytest==9.0.2"),
        "tests/test_a.py": PYTEST,
        "tests/test_b.py": PYTEST,
        "mypackage/tests/test_c.py": CASE,
    }
    tree |= {"web/package.json": npm(next="1"), "web/src/app.ts": "export {};\n"}
    report = await ask(tree, "Use a subtask to find what testing framework this project uses")
    rows = read_rows(report.text)
    assert "`pytest==9.0.2`" in rows["pytest"] and "use in 2 files" in rows["pytest"]
    assert "use in 1 file" in rows["unittest"]
    assert report.calls["task"] == 1


async def test_a_tree_too_big_to_list_is_still_understood(ask: Ask) -> None:
    tree = {f"docs/d{n // 100}/page{n}.txt": "x\n" for n in range(1100)}
    tree |= {"zz/pyproject.toml": pyproject("pytest>=8"), "zz/tests/test_a.py": PYTEST}
    assert "pytest>=8" in read_rows((await ask(tree, QUESTION)).text)["pytest"]
