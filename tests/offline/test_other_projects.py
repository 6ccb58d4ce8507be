"""Forms of code, manifests and READMEs that were misread in projects of other people."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.offline.conftest import Ask

from mudroom import Reason
from mudroom_offline.file_outline import describe_file
from mudroom_offline.plans import Translator
from mudroom_offline.tool_output import FileText

DEFINITIONS = {
    "a.js": ["  thing (a, b) {", "  static async thing () {", "thing: function (a) {"],
    "b.js": ["exports.thing = (a) => a", "app.thing = function (a) {"],
    "A.java": [
        "  @Test void thing() {",
        "  String thing(int a) {",
        "  @Deprecated public int thing;",
    ],
    "b.kt": ["fun Buffer?.thing(a: Int)", "val List<Int>.thing: Int"],
    "c.rb": ["class Box::thing", "thing = 1"],
    "d.h": ["class API_EXPORT thing {", "static const int thing = 7;"],
}
OTHER_LINES = {
    "a.js": ["import type thing from 'x'", "if (thing()) {", "log('a class thing here')"],
    "b.js": ["run(1) // see function thing", "await thing(() => {", "return thing (a) {"],
    "A.java": ["abstract class Other extends thing {", "return thing(a);", "new thing() {"],
    "B.java": ["final class Other implements thing {", "else if (x) thing(a);"],
    "C.cs": ["object thing = f();", "void f(object thing)"],
    "b.kt": ["fun thing.other() {", "val thing.other: Int", "fun thing<A>?.other() {"],
    "c.rb": ["class thing::Other", "thing =~ /x/"],
    "d.php": ["use function thing;", "use const thing;"],
    "e.ex": ["defmodule thing.Other do"],
    "f.lua": ["function thing.other()", "function thing:other()"],
    "g.pl": ["package thing::Other;"],
    "i.cc": ["class thing::Builder {"],
    "h.swift": ["extension thing {"],
}


async def test_every_form_of_a_definition_is_seen(ask: Ask) -> None:
    text = (await ask(_join(DEFINITIONS), "Where is `thing` defined?")).text
    definitions = text.partition("Other lines that contain")[0]
    lines = [line.strip() for lines in DEFINITIONS.values() for line in lines]
    assert [line for line in lines if f"`{line}`" not in definitions] == []


async def test_a_line_that_only_names_it_is_no_definition(ask: Ask) -> None:
    text = (await ask(_join(OTHER_LINES), "Where is `thing` defined?")).text
    assert text.startswith("No line was recognised as a definition of `thing` among 26 lines of 13")


async def test_a_name_that_ends_in_a_dollar_sign_is_another_name(ask: Ask) -> None:
    tree = {"a.js": "function thing$1(a) {\n}\n", "b.js": "function thing(a) {\n}\n"}
    text = (await ask(tree, "Where is `thing` defined?")).text
    assert text.partition("Other lines that contain")[0].count("function") == 1


@pytest.mark.parametrize("kind", ["fn", "func", "interface", "trait", "module"])
async def test_the_kind_of_a_definition_is_not_its_name(ask: Ask, kind: str) -> None:
    tree = {"a.rs": "const fn run() {}\nfn main() {}\n", "b.rs": "trait Shape {\n}\n"}
    report = await ask(tree, f"Where is {kind} main defined?")
    assert f"`{kind}`" not in report.text and report.reason is Reason.ERROR
    text = (await ask(tree, f"Where is {kind} Shape defined?")).text
    assert "definition or declaration of `Shape`:\n\n- `b.rs:1`" in text


@pytest.mark.parametrize("name", ["Box::Lid", "box.Lid", "Box#Lid"])
async def test_the_last_part_of_a_qualified_name_is_searched(ask: Ask, name: str) -> None:
    tree = {"a.rb": "module Box\n  class Lid\n  end\nend\nBox::Lid.new\n"}
    text = (await ask(tree, f"Where is `{name}` defined?")).text
    assert text.startswith(f"Searched for `Lid`, the last part of `{name}`.\n\nLines that look")
    assert "- `a.rb:2` `class Lid`" in text


async def test_a_prototype_is_a_definition_or_declaration(ask: Ask) -> None:
    text = (await ask({"a.h": "int thing(int a);\n"}, "Where is `thing` defined?")).text
    assert text.startswith("Lines that look like a definition or declaration of `thing`:\n\n- `a.h")


async def test_a_cut_search_ends_not_done(ask: Ask) -> None:
    tree = {f"a{n}.py": f"{' ' * n}x = thing  # {'-' * 60}\n" * 200 for n in range(9)}
    report = await ask(tree, "Where is `thing`?")
    assert "⚠ Not everything was searched" in report.text and report.reason is Reason.ERROR


async def test_a_definition_is_seen_among_very_many_uses(ask: Ask) -> None:
    uses = {f"a{n}.py": f"{' ' * n}x = thing  # {'-' * 60}\n" * 200 for n in range(9)}
    text = (await ask({**uses, "z.py": "class thing:\n    pass\n"}, "Where is `thing`?")).text
    assert "declaration of `thing`:\n\n- `z.py:1`" in text and "at least" in text
    text = (await ask({"z.py": "x = thing\n"}, "Where is `thing`?")).text
    assert "among at least" in text and "Not everything was searched" in text


async def test_a_plain_describe_block_is_no_sign_of_rspec(ask: Ask) -> None:
    tree = {
        "test/helper.rb": "require 'minitest/autorun'\n",
        "test/spec_a.rb": "require_relative 'helper'\n\ndescribe A do\nend\n",
    }
    text = (await ask(tree, "Which testing framework does this project use?")).text
    assert (
        "signs of **Minitest**;" in text and "RSpec" not in text and "its use in 1 file (" in text
    )


async def test_the_mocks_of_rspec_are_no_sign_of_rspec(ask: Ask) -> None:
    tree = {"test/helper.rb": "require 'minitest/autorun'\nrequire 'rspec/mocks'\n"}
    text = (await ask(tree, "Which testing framework does this project use?")).text
    assert text.startswith("The project has signs of **Minitest**;")


async def test_the_tests_of_contributions_are_not_the_project_s(ask: Ask) -> None:
    tree = {"contrib/net/T.cs": "using NUnit.Framework;\n", "a.c": "int a;\n"}
    text = (await ask(tree, "Which testing framework does this project use?")).text
    assert text.startswith("The project: **no testing framework** was recognised.")


async def test_a_shell_project_has_a_language(ask: Ask) -> None:
    text = (await ask({"run.sh": "echo\n"}, "What is the technology stack?")).text
    assert "| Shell | Language |  | `*.sh` `*.bash` `*.zsh` `*.bats`: 1 file |" in text


async def test_the_packages_of_examples_are_not_the_project_s(ask: Ask) -> None:
    require = "module x\n\nrequire example.org/{} v1.0.0\n"
    tree = {"go.mod": "module y\n", "_examples/rest/go.mod": require.format("render")}
    assert "render" not in (await ask(tree, "What are the dependencies?")).text


async def test_a_version_is_given_where_it_is_written(ask: Ask) -> None:
    tree = {
        "gradle/libs.versions.toml": """[libraries]
junit = { module = "junit:junit", version = "4.13.2" }
jmh-core = { module = "org.openjdk.jmh:jmh-core", version.ref = "jmh" }
""",
        "Cargo.toml": '[workspace.dependencies]\nsyn = "2.0.81"\n',
        "derive/Cargo.toml": "[dependencies]\nsyn = { workspace = true }\n",
    }
    text = (await ask(tree, "What are the dependencies?")).text
    assert "| junit:junit | 4.13.2 | `gradle/libs.versions.toml:2` |" in text
    assert "| org.openjdk.jmh:jmh-core | not seen |" in text
    assert "| syn | 2.0.81 | `Cargo.toml` `[workspace/dependencies]` |" in text
    assert "| syn | not seen | `derive/Cargo.toml` `[dependencies]` |" in text


async def test_a_dependency_has_its_section_or_its_line(ask: Ask) -> None:
    package = '{"dependencies": {"box": "1"}, "devDependencies": {"lint": "2"}}'
    tree = {"package.json": package, "requirements.txt": "pytest==8.4\n"}
    tree["tools/package.json"] = '{"dependencies": {"lint": "2"}}'
    text = (await ask(tree, "What are the dependencies?")).text
    assert "| Package | Version as written | Listed in |" in text
    assert "| box | 1 | `package.json` `[dependencies]` |" in text
    both = "`package.json` `[devDependencies]`, `tools/package.json` `[dependencies]`"
    assert f"| lint | 2 | {both} |" in text
    assert "| pytest | ==8.4 | `requirements.txt:1` |" in text


async def test_a_manifest_that_cannot_be_read_is_not_called_empty(ask: Ask) -> None:
    text = (await ask({"package.json": '{"dependencies": {'}, "What are the dependencies?")).text
    assert text.startswith("No dependencies were read from manifests.")
    assert "Not everything was searched: `package.json`" in text


@pytest.mark.parametrize(
    ("tree", "framework"),
    [
        (
            {
                "composer.json": '{"require-dev": {"symfony/phpunit-bridge": "^6.4"}}',
                "phpunit.xml.dist": "<phpunit/>\n",
            },
            "PHPUnit",
        ),
        (
            {
                "package.json": '{"dependencies": {"react-scripts": "5.0.1"}, '
                '"scripts": {"test": "react-scripts test"}}'
            },
            "Jest",
        ),
    ],
)
async def test_the_version_of_a_bundle_is_not_that_of_its_framework(
    ask: Ask, tree: dict[str, str], framework: str
) -> None:
    text = (await ask(tree, "Which testing framework does this project use?")).text
    assert f"| **{framework}** | Testing framework | not seen | a configuration file" in text


async def test_a_version_with_a_plus_sign_is_read(ask: Ask) -> None:
    tree = {"gradle/libs.versions.toml": 'j = { module = "a:j", version = "9+181-r4" }\n'}
    assert "| a:j | 9+181-r4 |" in (await ask(tree, "What are the dependencies?")).text


async def test_the_version_of_a_framework_is_not_that_of_another_group(ask: Ask) -> None:
    tree = {
        "build.gradle": 'testImplementation "androidx.test.ext:junit:1.3.0"\n'
        'testImplementation "junit:junit:4.13.2"\n',
        "src/test/ATest.java": "import org.junit.Test;\n",
    }
    text = (await ask(tree, "Which testing framework does this project use?")).text
    assert "| **JUnit 4** | Testing framework | 4.13.2 |" in text


async def test_a_maven_dependency_without_a_version_ends_where_it_ends(ask: Ask) -> None:
    item = "<dependency><groupId>g</groupId><artifactId>{}</artifactId>{}</dependency>\n"
    items = item.format("codec", "") + item.format("handler", "<scope>test</scope>")
    text = (
        await ask({"pom.xml": f"<project>{items}</project>"}, "What are the dependencies?")
    ).text
    assert "| codec | not seen | `pom.xml:1` |" in text
    assert "| handler | not seen | `pom.xml:2` |" in text


@pytest.mark.parametrize(
    ("readme", "expected"),
    [
        (
            "# x\n\n`chip` is a small router.\n\nThe focus is on design.\n",
            "`chip` is a small router.",
        ),
        ("=====\nA web framework\n=====\n\nTo get it:\n\n- one\n", "A web framework"),
        ("<!-- Copyright me.\n\nAll rights. -->\n\nA web server.\n", "A web server."),
        ("Located at the web site.\n\nA small object mapper.\n", "A small object mapper."),
        ("🔥️ **NEW**: version 4 is out!\n\nIt helps with dates.\n", "It helps with dates."),
        (
            "<div>\n<p>Thanks all.</p>\n<b>Fast builds by us.</b>\n</div>\n\n> A web server.\n",
            "A web server.",
        ),
        (
            "<div><h3>Fast.</h3>\n<p>See the picture above.</p></div>\n\nEasy web apps.\n",
            "Easy web apps.",
        ),
        ("# x\n\nBox is a web server. It:\n\n- runs\n", "Box is a web server. It:"),
    ],
)
async def test_a_readme_is_quoted_where_it_says_what_the_project_is(
    ask: Ask, readme: str, expected: str
) -> None:
    text = (await ask({"README.md": readme}, "What is this project?")).text
    assert re.search(rf"\n- `README.md:\d+` “{re.escape(expected)}”$", text), text


@pytest.mark.parametrize(("link", "prompt"), [("README.md", ""), ("lib/README.rst", " in lib/")])
async def test_a_readme_that_is_a_link_is_quoted(
    ask: Ask, tmp_path: Path, link: str, prompt: str
) -> None:
    path = tmp_path / "tree" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(Path(os.path.relpath(tmp_path / "tree" / "doc" / "about.txt", path.parent)))
    tree = {"doc/about.txt": "Box is a small router.\n"}
    text = (await ask(tree, f"Summarize the project{prompt}.")).text
    assert text.endswith(f"\n- `{link}:1` “Box is a small router.”")


async def test_a_readme_without_a_description_is_not_called_missing(ask: Ask) -> None:
    readme = "## Box\n\n- one\n- two\n"
    text = (await ask({"README.md": readme}, "What is this project?")).text
    assert text.startswith("No description was recognised in a README or a manifest")


async def test_a_cut_quotation_is_marked(ask: Ask) -> None:
    readme = f"Box is a library {'of words ' * 100}\n"
    text = (await ask({"README.md": readme}, "What is this project?")).text
    assert text.endswith("…”")


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (
            "a.rs",
            "//! Converts a style (e.g. `a-b`) to another.\n",
            "2 lines. Line 1: “Converts a style (e.g. `a-b`) to another.”",
        ),
        (
            "os.c",
            "// Copyright me\n\n// Stop warnings.\n#ifdef X\n\nint f(int a) {\n",
            "definitions: f.",
        ),
        (
            "ai.c",
            "/* Copyright me */\n\n/* Show codes.\n */\n#define A\nint f(int a) {\n",
            "definitions: f.",
        ),
        (
            "e.h",
            "void Log(const char* a, int b)\n#if A\n;\n#endif\nint f(int a)\n{\n",
            "definitions: f.",
        ),
        (
            "h.c",
            "/* Copyright me */\n\n/*\n * Change history:\n */\nint f(int a)\n{\n",
            "definitions: f.",
        ),
        (
            "m.rs",
            "/// Adds.\n#[macro_export]\nmacro_rules! a {\n}\npub fn f() {}\n",
            "definitions: f.",
        ),
        ("o.cs", "public class O {\n    object tmp = f();\n}\n", "definitions: O."),
        (
            "t.py",
            'class T:\n    """\n    t = T("a")\n\n    return t.run()\n    """\n',
            "definitions: T.",
        ),
        (
            "io.js",
            "// Built-in modules.\nimport fs from 'fs'\n\nexport const a = 1\n",
            "definitions: a.",
        ),
        ("t.ts", "/**\n * @internal\n */\nexport class T {}\n", "definitions: T."),
        (
            "u.ts",
            "/**\n * Sends mail.\n * @public\n */\nexport class U {}\n",
            "“Sends mail.”. Lines that look like definitions: U.",
        ),
        (
            "S.swift",
            "extension URL {}\n\npublic class S {\n    class func a() {}\n    private func b()\n",
            "definitions: S, a.",
        ),
        (
            "n.h",
            "namespace std {\ntemplate <> struct hash<A> {\n};\n}\nstruct B {\n",
            "definitions: B.",
        ),
        (
            "A.java",
            "package a;\n\n/* Thank you, B. */\nimport b.C;\n\n/** Cleans HTML. */\nclass A {}\n",
            "Line 6: “Cleans HTML.”. Lines that look like definitions: A.",
        ),
    ],
)
def test_a_summary_reads_whole_sentences_about_the_file(
    path: str, text: str, expected: str
) -> None:
    summary = describe_file(FileText(path, text), Translator())
    assert expected in summary and ("“" in summary) is ("“" in expected), summary


async def test_all_suffixes_of_a_language_are_counted(ask: Ask) -> None:
    tree = {"a.js": "1\n", "b.mjs": "1\n", "c.cjs": "1\n", "d.ts": "1\n"}
    assert (
        "3 files match `**/*.js`, `**/*.mjs`"
        in (await ask(tree, "How many JavaScript files are there?")).text
    )


def _join(lines: dict[str, list[str]]) -> dict[str, str]:
    return {path: "\n".join(rows) + "\n" for path, rows in lines.items()}


async def test_the_licence_is_quoted_with_its_place(ask: Ask) -> None:
    tree = {
        "LICENSE": "MIT License\n\nCopyright (c) 2020 Ada\n\nPermission is hereby granted\n",
        "pyproject.toml": '[project]\nname = "a"\nlicense = "MIT"\n',
    }
    text = (await ask(tree, "What is the licence of this project?")).text
    assert "`LICENSE:1` `MIT License`" in text


async def test_lines_with_test_commands_are_quoted_with_their_places(ask: Ask) -> None:
    tree = {"Makefile": "test:\n\tpytest -q tests\n", "tests/test_a.py": "def test_a(): ...\n"}
    text = (await ask(tree, "How do I run the tests?")).text
    assert "`Makefile:2` `pytest -q tests`" in text


async def test_the_description_of_the_manifest_is_quoted_before_the_readme(ask: Ask) -> None:
    tree = {
        "pyproject.toml": '[project]\nname = "box"\ndescription = "Boxes for cats."\n',
        "README.md": "# Box\n\nBox is a library for dogs.\n",
    }
    text = (await ask(tree, "What is this project?")).text
    assert '`pyproject.toml:3` `description = "Boxes for cats."`' in text
    assert "dogs" not in text
