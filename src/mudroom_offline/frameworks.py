"""What testing frameworks look like: in manifests (`packages`), in configuration, and in the test files that use them.

One row a framework. `used` is a regular expression both ripgrep and Python understand; it is looked for in `files` only.
"""

from __future__ import annotations

from msgspec import Struct


class Framework(Struct, frozen=True):
    """How to recognise one framework.

    Arguments:
        name, language: as shown. files: globs of the files that may use it. used: how a line of use looks.
        packages: names it is declared by. config: regex over paths of its configuration files.
        tool: regex over the tools and test commands configured in manifests.
        kind: framework, or what it is beside one: runner, library, e2e, benchmark.
        standard: it comes with the language. plain: test files that import nothing may be its own.
    """

    name: str
    language: str
    files: tuple[str, ...]
    used: str
    packages: str = ""
    config: str = ""
    tool: str = ""
    kind: str = "framework"
    standard: str = ""
    plain: bool = False


class Language(Struct, frozen=True):
    """How a language's source and test files look, and a test that names no framework.

    Arguments:
        suffixes: of source files. tests: regex over paths of test files. manifests: regex over names of manifests.
        plain: how a test looks that imports no framework; plain_files: globs of the files that may hold one.
    """

    suffixes: str
    tests: str
    manifests: str
    plain: str = ""
    plain_files: tuple[str, ...] = ()


_PY = ("*.py",)
_JS = ("*.js", "*.jsx", "*.ts", "*.tsx", "*.mjs", "*.cjs", "*.mts", "*.cts", "*.vue", "*.svelte")
_JVM = ("*.java", "*.kt", "*.groovy", "*.scala")
_CPP = ("*.cpp", "*.cc", "*.cxx", "*.c", "*.h", "*.hpp")

LANGUAGES = {
    "Python": Language(
        ".py",
        r"(^|/)tests?/|(^|/)test_[^/]*$|_tests?\.py$|(^|/)(conftest|tests)\.py$|(^|/)(testing|steps|features)/",
        r"pyproject\.toml|setup\.(py|cfg)|Pipfile|tox\.ini|noxfile\.py|[^/]*requirements[^/]*\.txt|requirements/[^/]+\.(txt|in)",
        r"^(async )?def test_\w+|^class Test\w*(\(object\)|\(\))?:",
        ("test_*.py", "*_test.py"),
    ),
    "JavaScript": Language(
        ".js .jsx .ts .tsx .mjs .cjs .mts .cts .vue .svelte",
        r"(^|/)(tests?|specs?|__tests__|e2e|cypress|test-.*)/|[._-](test|spec|cy|e2e)\.\w+$|(^|/)tests?\.\w+$",
        r"package\.json|deno\.json",
        r"^\s*(describe|it|test|suite)(\.\w+)?\s*\(",
        (
            "*.test.*",
            "*.spec.*",
            "*-test.*",
            "*_test.*",
            "*Spec.*",
            "test*.js",
            "**/test/**/*.js",
            "**/tests/**/*.js",
            "**/test/**/*.ts",
            "**/__tests__/**",
        ),
    ),
    "Go": Language(".go", r"_test\.go$", r"go\.mod"),
    "Rust": Language(".rs", r"\.rs$", r"Cargo\.toml"),
    "Java/Kotlin": Language(
        ".java .kt .groovy .scala",
        r"(^|/)(test|tests|\w*Test|it)/|(Test|Tests|Spec|IT)\.\w+$",
        r"pom\.xml|build\.gradle(\.kts)?|build\.sbt|libs\.versions\.toml",
    ),
    "Ruby": Language(
        ".rb", r"_(spec|test)\.rb$|(^|/)(spec|test|features)/|(^|/)test_", r"Gemfile|[^/]*\.gemspec"
    ),
    "PHP": Language(".php", r"(^|/)tests?/|Test\.php$", r"composer\.json"),
    ".NET": Language(
        ".cs .fs .vb",
        r"(?i)tests?[./]|tests?\.\w+$|spec",
        r"[^/]*\.[cf]sproj|Directory\.Packages\.props",
    ),
    "Elixir": Language(".ex .exs", r"_test\.exs$|(^|/)test/", r"mix\.exs"),
    "C/C++": Language(
        ".c .cc .cpp .cxx .h .hpp",
        r"(?i)test|spec|check",
        r"CMakeLists\.txt|meson\.build|vcpkg\.json|conanfile\.txt",
    ),
    "Swift": Language(".swift", r"Tests?/|Tests?\.swift$", r"Package\.swift"),
    "Dart": Language(".dart", r"_test\.dart$|(^|/)(test|integration_test)/", r"pubspec\.yaml"),
    "Shell": Language(".bats", r"\.bats$", r"-"),
    "Perl": Language(".t .pm .pl", r"\.t$", r"cpanfile"),
    "Haskell": Language(".hs", r"(?i)(test|spec)", r"[^/]*\.cabal"),
}

_F = Framework
FRAMEWORKS = (
    _F(
        "pytest",
        "Python",
        _PY,
        r"^\s*(import pytest\b|from pytest import|from _pytest\b)",
        "pytest",
        config=r"(^|/)(pytest\.ini|conftest\.py)$",
        tool=r"\[tool\.pytest\]|\[(tool:)?pytest\]",
        plain=True,
    ),
    _F(
        "unittest",
        "Python",
        _PY,
        r"^\s*(import unittest\s*$|import unittest as|from unittest import .*(TestCase|main)|from unittest\.case)|^\s*class \w+\(.*\bunittest\.(\w+)?TestCase",
        standard="stdlib",
    ),
    _F("Django test runner", "Python", _PY, r"^from django\.test import", standard="with django"),
    _F(
        "nose2",
        "Python",
        _PY,
        r"^\s*(import nose2|from nose2)",
        "nose2",
        config=r"(^|/)(unittest|nose2)\.cfg$",
        tool=r"\bnose2\b",
    ),
    _F(
        "nose",
        "Python",
        _PY,
        r"^\s*(import nose\b|from nose[. ])",
        "nose",
        tool=r"\[nosetests\]|\bnosetests\b",
    ),
    _F("behave", "Python", _PY, r"^from behave import", "behave", config=r"(^|/)behave\.ini$"),
    _F("Robot Framework", "Python", ("*.robot",), r"^\*+ *Test Cases", "robotframework"),
    _F(
        "Hypothesis",
        "Python",
        _PY,
        r"^\s*(import hypothesis\b|from hypothesis\b)",
        "hypothesis",
        kind="library",
    ),
    _F(
        "tox",
        "Python",
        (),
        "",
        "tox",
        config=r"(^|/)tox\.(ini|toml)$",
        tool=r"\[tool\.tox\]|\[tox\]",
        kind="runner",
    ),
    _F(
        "nox",
        "Python",
        (),
        "",
        "nox",
        config=r"(^|/)noxfile\.py$",
        tool=r"\[tool\.nox\]",
        kind="runner",
    ),
    _F(
        "Jest",
        "JavaScript",
        _JS,
        r"@jest/globals|\bjest\.(fn|mock|spyOn|setTimeout|useFakeTimers)\(",
        "jest ts-jest babel-jest jest-cli react-scripts @jest/globals jest-expo",
        config=r"(^|/)jest\.config\.\w+$",
        tool=r"\[jest\]|\bjest\b",
        plain=True,
    ),
    _F(
        "Vitest",
        "JavaScript",
        _JS,
        r"""from ['"]vitest['"]|require\(['"]vitest['"]\)""",
        "vitest",
        config=r"(^|/)vitest\.(config|workspace)\.\w+$",
        tool=r"\bvitest\b",
        plain=True,
    ),
    _F(
        "Mocha",
        "JavaScript",
        _JS,
        r"""(from |require\()['"]mocha['"]""",
        "mocha",
        config=r"(^|/)\.mocharc\.?\w*$|(^|/)test/mocha\.opts$",
        tool=r"\[mocha\]|\bmocha\b",
        plain=True,
    ),
    _F(
        "Jasmine",
        "JavaScript",
        _JS,
        r"""(from |require\()['"]jasmine['"]|\bjasmine\.\w+""",
        "jasmine jasmine-core",
        config=r"(^|/)jasmine\.(json|mjs|js)$",
        tool=r"\bjasmine\b",
        plain=True,
    ),
    _F(
        "AVA",
        "JavaScript",
        _JS,
        r"""from ['"]ava['"]|require\(['"]ava['"]\)""",
        "ava",
        config=r"(^|/)ava\.config\.\w+$",
        tool=r"\[ava\]",
    ),
    _F(
        "tap",
        "JavaScript",
        _JS,
        r"""(from |require\()['"](tap|tape|@tapjs/\w+)['"]""",
        "tap tape",
        config=r"(^|/)\.taprc$",
        tool=r"\[tap\]",
    ),
    _F("QUnit", "JavaScript", _JS, r"\bQUnit\.(module|test)\(", "qunit"),
    _F(
        "node:test",
        "JavaScript",
        _JS,
        r"""(from |require\()['"]node:test['"]""",
        tool=r"\bnode\b[^&|]* --test\b",
        standard="built into Node.js",
    ),
    _F("bun:test", "JavaScript", _JS, r"""from ['"]bun:test['"]""", standard="built into Bun"),
    _F("Deno.test", "JavaScript", _JS, r"\bDeno\.test\(", standard="built into Deno"),
    _F("uvu", "JavaScript", _JS, r"""(from |require\()['"]uvu['"]""", "uvu"),
    _F(
        "Playwright",
        "JavaScript",
        _JS,
        r"""(from |require\()['"]@playwright/test['"]""",
        "@playwright/test",
        config=r"(^|/)playwright\.config\.\w+$",
        kind="e2e",
    ),
    _F(
        "Cypress",
        "JavaScript",
        _JS,
        r"\bcy\.(visit|get|contains|request|intercept)\(",
        "cypress",
        config=r"(^|/)cypress\.(config\.\w+|json)$",
        kind="e2e",
    ),
    _F(
        "Testing Library",
        "JavaScript",
        _JS,
        r"""(from |require\()['"]@testing-library/""",
        "@testing-library/react @testing-library/dom @testing-library/vue @testing-library/jest-dom @testing-library/svelte @testing-library/user-event",
        kind="library",
    ),
    _F("Chai", "JavaScript", _JS, r"""(from |require\()['"]chai['"]""", "chai", kind="library"),
    _F("Karma", "JavaScript", (), "", "karma", config=r"(^|/)karma\.conf\.\w+$", kind="runner"),
    _F(
        "testing",
        "Go",
        ("*_test.go",),
        r"^func (Test|Benchmark|Fuzz|Example)\w*\(",
        standard="standard library",
    ),
    _F(
        "Testify",
        "Go",
        ("*.go",),
        r"\"github\.com/stretchr/testify",
        "github.com/stretchr/testify",
        kind="library",
    ),
    _F(
        "Ginkgo",
        "Go",
        ("*.go",),
        r"\"github\.com/onsi/ginkgo",
        "github.com/onsi/ginkgo github.com/onsi/ginkgo/v2",
    ),
    _F(
        "Gomega",
        "Go",
        ("*.go",),
        r"\"github\.com/onsi/gomega",
        "github.com/onsi/gomega",
        kind="library",
    ),
    _F(
        "cargo test",
        "Rust",
        ("*.rs",),
        r"^\s*#\[((\w+::)*test\b|cfg\(test\))",
        standard="built into Rust",
    ),
    _F("proptest", "Rust", ("*.rs",), r"^\s*use proptest\b|proptest!", "proptest", kind="library"),
    _F(
        "quickcheck",
        "Rust",
        ("*.rs",),
        r"^\s*use quickcheck\b|quickcheck!",
        "quickcheck",
        kind="library",
    ),
    _F("rstest", "Rust", ("*.rs",), r"^\s*use rstest\b|#\[rstest", "rstest", kind="library"),
    _F(
        "Criterion",
        "Rust",
        ("*.rs",),
        r"^\s*use criterion\b|criterion_group!",
        "criterion",
        kind="benchmark",
    ),
    _F(
        "JUnit 5",
        "Java/Kotlin",
        _JVM,
        r"^import (static )?org\.junit\.jupiter",
        "junit-jupiter junit-jupiter-api junit-jupiter-engine spring-boot-starter-test junit-bom",
        tool=r"useJUnitPlatform",
    ),
    _F(
        "JUnit 4",
        "Java/Kotlin",
        _JVM,
        r"^import (static )?org\.junit\.(Test|Assert|Before|After|Rule|Ignore|ClassRule|runner|runners|rules|\*)",
        "junit",
    ),
    _F(
        "TestNG",
        "Java/Kotlin",
        _JVM,
        r"^import (static )?org\.testng",
        "testng",
        config=r"(^|/)testng\.xml$",
        tool=r"useTestNG",
    ),
    _F(
        "Spock",
        "Java/Kotlin",
        ("*.groovy",),
        r"^import spock\.lang|extends (\w+)?Specification",
        "spock-core",
    ),
    _F(
        "Kotest",
        "Java/Kotlin",
        ("*.kt",),
        r"^import io\.kotest",
        "kotest-runner-junit5 kotest-runner-junit5-jvm kotest-assertions-core kotest-framework-engine",
    ),
    _F(
        "kotlin.test",
        "Java/Kotlin",
        ("*.kt",),
        r"^import kotlin\.test",
        "kotlin-test kotlin-test-junit kotlin-test-junit5",
    ),
    _F("ScalaTest", "Java/Kotlin", ("*.scala",), r"^import org\.scalatest", "scalatest"),
    _F(
        "RSpec",
        "Ruby",
        ("*.rb",),
        r"^\s*(RSpec\.)?(describe|feature) .* do\s*(\|.*)?$|RSpec\.configure",
        "rspec rspec-rails rspec-core",
        config=r"(^|/)\.rspec$",
    ),
    _F(
        "Minitest",
        "Ruby",
        ("*.rb",),
        r"Minitest::(Test|Spec)|MiniTest::Unit|require ['\"]minitest|ActiveSupport::TestCase",
        "minitest",
    ),
    _F("test-unit", "Ruby", ("*.rb",), r"Test::Unit::TestCase|require ['\"]test/unit", "test-unit"),
    _F("Cucumber", "Ruby", ("*.feature",), r"^\s*Feature:", "cucumber cucumber-rails"),
    _F(
        "PHPUnit",
        "PHP",
        ("*.php",),
        r"^use PHPUnit\\|extends \\?PHPUnit|extends (\w*)TestCase\b",
        "phpunit/phpunit symfony/phpunit-bridge",
        config=r"(^|/)phpunit\.xml(\.dist)?$",
    ),
    _F(
        "Pest",
        "PHP",
        ("*.php",),
        r"^(it|test|describe|uses|arch)\(",
        "pestphp/pest",
        config=r"(^|/)Pest\.php$",
    ),
    _F(
        "xUnit.net",
        ".NET",
        ("*.cs", "*.fs", "*.vb"),
        r"^\s*(global )?using Xunit|^open Xunit|\[(Fact|Theory)[\](]",
        "xunit xunit.v3 xunit.core",
    ),
    _F(
        "NUnit",
        ".NET",
        ("*.cs", "*.fs", "*.vb"),
        r"^\s*(global )?using NUnit\.Framework|^open NUnit",
        "NUnit nunit",
    ),
    _F(
        "MSTest",
        ".NET",
        ("*.cs", "*.fs", "*.vb"),
        r"using Microsoft\.VisualStudio\.TestTools\.UnitTesting|\[TestMethod\]",
        "MSTest MSTest.TestFramework",
    ),
    _F(
        "ExUnit",
        "Elixir",
        ("*.exs", "*.ex"),
        r"^\s*use (ExUnit\.Case|\w+(\.\w+)*\.(ConnCase|DataCase|ChannelCase))",
        standard="built into Elixir",
    ),
    _F("StreamData", "Elixir", ("*.exs",), r"use ExUnitProperties", "stream_data", kind="library"),
    _F("GoogleTest", "C/C++", _CPP, r"#include\s*[<\"]g(test|mock)/", "GTest gtest googletest"),
    _F(
        "Catch2",
        "C/C++",
        _CPP,
        r"#include\s*[<\"](.*/)?catch(2|_test_macros|_all)?(/.*)?(\.hpp)?[>\"]",
        "Catch2 catch2",
    ),
    _F("doctest", "C/C++", _CPP, r"#include\s*[<\"](.*/)?doctest\.h", "doctest"),
    _F("Boost.Test", "C/C++", _CPP, r"#include\s*[<\"]boost/test/", ""),
    _F("CppUTest", "C/C++", _CPP, r"#include\s*[<\"]CppUTest/", "CppUTest"),
    _F(
        "CTest",
        "C/C++",
        ("CMakeLists.txt", "*.cmake"),
        r"^\s*(enable_testing\s*\(|add_test\s*\(|include\s*\(\s*CTest)",
        kind="runner",
        standard="with CMake",
    ),
    _F("XCTest", "Swift", ("*.swift",), r"^\s*(@testable )?import XCTest", standard="with Swift"),
    _F("Swift Testing", "Swift", ("*.swift",), r"^\s*import Testing\b", standard="with Swift"),
    _F("test", "Dart", ("*.dart",), r"package:test/", "test"),
    _F("flutter_test", "Dart", ("*.dart",), r"package:flutter_test/", "flutter_test"),
    _F("Bats", "Shell", ("*.bats",), r"^@test "),
    _F("Test::More", "Perl", ("*.t",), r"^\s*use Test::", "Test::More", standard="with Perl"),
    _F("Hspec", "Haskell", ("*.hs",), r"^import (qualified )?Test\.Hspec", "hspec"),
    _F("Tasty", "Haskell", ("*.hs",), r"^import (qualified )?Test\.Tasty", "tasty"),
)
