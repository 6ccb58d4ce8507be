"""Detection on projects it was not written for: one tiny tree a language, a framework, a trap."""

from __future__ import annotations

import json
import re

import pytest
from tests.offline.conftest import Ask

QUESTION = "Which testing framework does this project use?"
PYTEST = "import pytest\n\n\ndef test_a():\n    assert pytest\n"
CASE = "import unittest\n\n\nclass TestA(unittest.TestCase):\n    def test_a(self):\n        pass\n"
DESCRIBE = "describe('a', () => {\n  it('works', () => {});\n});\n"


def npm(test: str = "", **dev: str) -> str:
    return json.dumps(
        {
            "name": "app",
            "scripts": {"test": test},
            "devDependencies": {k.replace("__", "/"): v for k, v in dev.items()},
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
CMAKE = "project(demo)\nenable_testing()\nadd_test(NAME a COMMAND a)\n"

TREES: dict[str, tuple[dict[str, str], list[str], str]] = {
    "pytest": (
        {"pyproject.toml": pyproject("pytest>=8.1"), "tests/test_a.py": PYTEST},
        ["pytest"],
        ">=8.1",
    ),
    "pytest in requirements": (
        {
            "requirements-dev.txt": "# tests\npytest==7.4.0\n",
            "tests/test_a.py": PYTEST,
        },
        ["pytest"],
        "==7.4.0",
    ),
    "pytest in a lock": (
        {
            "requirements/dev.txt": "pytest==9.0.2 \\\n    --hash=sha256:00\n",
            "tests/test_a.py": PYTEST,
        },
        ["pytest"],
        "==9.0.2",
    ),
    "pytest in setup.py": (
        {
            "setup.py": (
                "from setuptools import setup\nsetup(name='d', extras_require={'test': "
                "['pytest>=6']})\n"
            ),
            "tests/test_a.py": PYTEST,
        },
        ["pytest"],
        "",
    ),
    "pytest in tox.ini": (
        {
            "tox.ini": "[tox]\nenvlist = py\n[testenv]\ndeps =\n    pytest>=5\ncommands = pytest\n",
            "tests/test_a.py": PYTEST,
        },
        ["pytest", "tox"],
        "",
    ),
    "pytest with poetry": (
        {
            "pyproject.toml": (
                '[tool.poetry]\nname = "d"\n[tool.poetry.group.dev.dependencies]\npytest = "^8.0"\n'
            ),
            "tests/test_a.py": PYTEST,
        },
        ["pytest"],
        "^8.0",
    ),
    "pytest with pipenv": (
        {"Pipfile": '[dev-packages]\npytest = "~=8.0"\n', "tests/test_a.py": PYTEST},
        ["pytest"],
        "~=8.0",
    ),
    "unittest": (
        {"setup.py": "from setuptools import setup\nsetup(name='d')\n", "tests/test_a.py": CASE},
        ["unittest"],
        "",
    ),
    "nose2": (
        {
            "setup.cfg": (
                "[metadata]\nname = d\n[options.extras_require]\ntest =\n    nose2>=0.12\n"
            ),
            "tests/test_a.py": (
                "from nose2.tools import params\n\n\n@params(1)\ndef test_a(n):\n    pass\n"
            ),
        },
        ["nose2"],
        "",
    ),
    "hypothesis": (
        {
            "pyproject.toml": pyproject("pytest", "hypothesis>=6"),
            "tests/test_a.py": PYTEST + "from hypothesis import given\n",
        },
        ["pytest", "Hypothesis"],
        ">=6",
    ),
    "nox": (
        {
            "noxfile.py": (
                "import nox\n\n\n@nox.session\ndef tests(session):\n    session.install('pytest')\n"
            ),
            "tests/test_a.py": PYTEST,
        },
        ["pytest", "nox"],
        "",
    ),
    "behave": (
        {
            "requirements.txt": "behave==1.2.6\n",
            "features/steps/a.py": "from behave import given\n",
        },
        ["behave"],
        "==1.2.6",
    ),
    "robot": (
        {
            "requirements.txt": "robotframework==7.0\n",
            "tests/a.robot": "*** Test Cases ***\nA\n    Log    hi\n",
            "a.py": "x = 1\n",
        },
        ["Robot Framework"],
        "==7.0",
    ),
    "jest": (
        {"package.json": npm("jest", jest="^29.0.0"), "src/a.test.js": DESCRIBE},
        ["Jest"],
        "^29.0.0",
    ),
    "vitest": (
        {"package.json": npm("vitest run", vitest="^2.1.0"), "src/a.test.ts": js("vitest")},
        ["Vitest"],
        "^2.1.0",
    ),
    "mocha and chai": (
        {
            "package.json": npm("mocha", mocha="^10.0.0", chai="^5"),
            "test/a.js": "import { expect } from 'chai';\n" + DESCRIBE,
        },
        ["Mocha", "Chai"],
        "^10.0.0",
    ),
    "ava": (
        {"package.json": npm("ava", ava="^6.0.0"), "test/a.js": "import test from 'ava';\n"},
        ["AVA"],
        "^6.0.0",
    ),
    "tap": (
        {"package.json": npm("tap", tap="^18.0.0"), "test/a.js": "const t = require('tap')\n"},
        ["tap"],
        "^18.0.0",
    ),
    "jasmine and karma": (
        {
            "package.json": npm("karma start", **{"jasmine-core": "~5.1.0", "karma": "~6.4.0"}),
            "karma.conf.js": "module.exports = () => {};\n",
            "src/a.spec.ts": DESCRIBE,
        },
        ["Karma", "Jasmine"],
        "~5.1.0",
    ),
    "node:test": (
        {"package.json": npm("node --test"), "test/a.mjs": "import test from 'node:test';\n"},
        ["node:test"],
        "",
    ),
    "playwright": (
        {
            "package.json": npm("playwright test", **{"@playwright/test": "^1.40.0"}),
            "playwright.config.ts": "export default {};\n",
            "e2e/a.spec.ts": "import { test } from '@playwright/test';\n",
        },
        ["Playwright"],
        "^1.40.0",
    ),
    "cypress": (
        {
            "package.json": npm("cypress run", cypress="^13.0.0"),
            "cypress/e2e/a.cy.ts": "it('a', () => { cy.visit('/'); });\n",
        },
        ["Cypress"],
        "^13.0.0",
    ),
    "testing-library": (
        {
            "package.json": npm("jest", jest="^29.0.0", **{"@testing-library/react": "^14"}),
            "src/a.test.tsx": "import { render } from '@testing-library/react';\n" + DESCRIBE,
        },
        ["Jest", "Testing Library"],
        "^14",
    ),
    "go": (
        {
            "go.mod": "module example.invalid/a\n\ngo 1.22\n",
            "a_test.go": 'package a\n\nimport "testing"\n\nfunc TestA(t *testing.T) {}\n',
        },
        ["Go testing"],
        "",
    ),
    "testify": (
        {
            "go.mod": "module a\n\nrequire (\n\tgithub.com/stretchr/testify v1.9.0\n)\n",
            "a_test.go": (
                'package a\n\nimport (\n\t"testing"\n\t"github.com/stretchr/testify/asser'
                't"\n)\n\nfunc TestA(t *testing.T) {}\n'
            ),
        },
        ["Go testing", "Testify"],
        "v1.9.0",
    ),
    "ginkgo": (
        {
            "go.mod": "module a\n\nrequire github.com/onsi/ginkgo/v2 v2.15.0\n",
            "a_test.go": 'package a\n\nimport . "github.com/onsi/ginkgo/v2"\n',
        },
        ["Ginkgo"],
        "v2.15.0",
    ),
    "rust": (
        {
            "Cargo.toml": '[package]\nname = "a"\n',
            "src/lib.rs": "#[cfg(test)]\nmod tests {\n    #[test]\n    fn a() {}\n}\n",
        },
        ["cargo test"],
        "",
    ),
    "proptest and criterion": (
        {
            "Cargo.toml": (
                '[package]\nname = "a"\n[dev-dependencies]\nproptest = "1.4"\ncriterion '
                '= { version = "0.5" }\n'
            ),
            "src/lib.rs": "#[test]\nfn a() {}\n",
            "tests/p.rs": "use proptest::prelude::*;\n#[test]\nfn p() {}\n",
            "benches/b.rs": "use criterion::Criterion;\n",
        },
        ["cargo test", "proptest", "Criterion"],
        "0.5",
    ),
    "junit 5": (
        {
            "pom.xml": POM.format("junit-jupiter", "5.10.0"),
            "src/test/java/ATest.java": "import org.junit.jupiter.api.Test;\n",
        },
        ["JUnit Jupiter"],
        "5.10.0",
    ),
    "junit 4": (
        {
            "pom.xml": POM.format("junit", "4.13.2"),
            "src/test/java/ATest.java": "import org.junit.Test;\n",
        },
        ["JUnit (org.junit)"],
        "4.13.2",
    ),
    "junit 5 in gradle": (
        {
            "build.gradle.kts": (
                'dependencies {\n    // testImplementation("junit:junit:4.12")\n    '
                'testImplementation("org.junit.jupiter:junit-jupiter:5.11.1")\n}\n'
            ),
            "src/test/kotlin/ATest.kt": "import org.junit.jupiter.api.Test\n",
        },
        ["JUnit Jupiter"],
        "5.11.1",
    ),
    "testng": (
        {
            "pom.xml": POM.format("testng", "7.9.0"),
            "src/test/java/ATest.java": "import org.testng.annotations.Test;\n",
        },
        ["TestNG"],
        "7.9.0",
    ),
    "spock": (
        {
            "build.gradle": (
                "dependencies {\n    testImplementation "
                "'org.spockframework:spock-core:2.3-groovy-4.0'\n}\n"
            ),
            "src/test/groovy/ASpec.groovy": "import spock.lang.Specification\n",
        },
        ["Spock"],
        "2.3-groovy-4.0",
    ),
    "kotest": (
        {
            "build.gradle.kts": (
                'dependencies {\n    testImplementation("io.kotest:kotest-runner-junit5:5'
                '.8.0")\n}\n'
            ),
            "src/test/kotlin/ATest.kt": "import io.kotest.core.spec.style.StringSpec\n",
        },
        ["Kotest"],
        "5.8.0",
    ),
    "rspec": (
        {
            "Gemfile": GEM.format("rspec", "~> 3.12"),
            "spec/a_spec.rb": "RSpec.describe 'a' do\nend\n",
        },
        ["RSpec"],
        "~> 3.12",
    ),
    "minitest": (
        {
            "Gemfile": GEM.format("minitest", "~> 5.0"),
            "test/a_test.rb": "require 'minitest/autorun'\nclass ATest < Minitest::Test\nend\n",
        },
        ["Minitest"],
        "~> 5.0",
    ),
    "phpunit": (
        {
            "composer.json": '{"require-dev": {"phpunit/phpunit": "^10.5"}}',
            "tests/ATest.php": "<?php\nuse PHPUnit\\Framework\\TestCase;\n",
        },
        ["PHPUnit"],
        "^10.5",
    ),
    "pest": (
        {
            "composer.json": '{"require-dev": {"pestphp/pest": "^2.0"}}',
            "tests/A.php": "<?php\n\nit('works', function () {});\n",
        },
        ["Pest"],
        "^2.0",
    ),
    "xunit": (
        {
            "A.Tests/A.Tests.csproj": CSPROJ.format("xunit", "2.6.0"),
            "A.Tests/ATests.cs": "using Xunit;\n",
        },
        ["xUnit.net"],
        "2.6.0",
    ),
    "nunit": (
        {
            "A.Tests/A.Tests.csproj": CSPROJ.format("NUnit", "4.0.1"),
            "A.Tests/ATests.cs": "using NUnit.Framework;\n",
        },
        ["NUnit"],
        "4.0.1",
    ),
    "mstest": (
        {
            "A.Tests/A.Tests.csproj": CSPROJ.format("MSTest.TestFramework", "3.1.1"),
            "A.Tests/ATests.cs": "using Microsoft.VisualStudio.TestTools.UnitTesting;\n",
        },
        ["MSTest"],
        "3.1.1",
    ),
    "exunit": (
        {
            "mix.exs": "defmodule A.MixProject do\nend\n",
            "test/a_test.exs": "defmodule ATest do\n  use ExUnit.Case, async: true\nend\n",
        },
        ["ExUnit"],
        "",
    ),
    "gtest and ctest": (
        {
            "CMakeLists.txt": CMAKE + "find_package(GTest 1.14 REQUIRED)\n",
            "tests/a_test.cpp": "#include <gtest/gtest.h>\n",
        },
        ["GoogleTest", "CTest"],
        "",
    ),
    "catch2": (
        {
            "CMakeLists.txt": "project(demo)\nfind_package(Catch2 3 REQUIRED)\n",
            "tests/a.cpp": "#include <catch2/catch_test_macros.hpp>\n",
        },
        ["Catch2"],
        "",
    ),
    "doctest": (
        {"CMakeLists.txt": "project(demo)\n", "tests/a.cpp": '#include "doctest/doctest.h"\n'},
        ["doctest (C++)"],
        "",
    ),
    "boost.test": (
        {
            "CMakeLists.txt": "project(demo)\n",
            "test/a.cpp": "#include <boost/test/unit_test.hpp>\n",
        },
        ["Boost.Test"],
        "",
    ),
    "xctest": (
        {
            "Package.swift": 'let package = Package(name: "A")\n',
            "Tests/ATests/ATests.swift": "import XCTest\n",
        },
        ["XCTest"],
        "",
    ),
    "dart": (
        {
            "pubspec.yaml": "name: a\ndev_dependencies:\n  test: ^1.25.0\n",
            "test/a_test.dart": "import 'package:test/test.dart';\n",
        },
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


async def test_answers_in_chinese(ask: Ask) -> None:
    report = await ask(
        {"pyproject.toml": pyproject("pytest>=8"), "tests/test_a.py": PYTEST},
        "用子任务找出这个项目用的测试框架是什么",
    )
    assert "| **pytest** |" in report.text and "像是使用它的行见于 1 个文件" in report.text
    assert report.calls["task"] == 1


async def test_the_parent_reads_nothing_itself(ask: Ask) -> None:
    report = await ask(
        {"pyproject.toml": pyproject("pytest>=8"), "tests/test_a.py": PYTEST}, QUESTION
    )
    assert "read" not in report.calls and "grep" not in report.calls


async def test_a_tree_too_big_to_list_is_still_understood(ask: Ask) -> None:
    tree = {f"docs/d{n // 100}/page{n}.txt": "x\n" for n in range(1100)}
    tree |= {"zz/pyproject.toml": pyproject("pytest>=8"), "zz/tests/test_a.py": PYTEST}
    assert "pytest>=8" in read_rows((await ask(tree, QUESTION)).text)["pytest"]
