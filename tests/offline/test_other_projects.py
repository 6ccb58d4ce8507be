"""Forms of code, manifests and READMEs that were misread in projects of other people."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.offline.conftest import Ask

from mudroom import Reason
from mudroom_offline.files import FileText, describe_file
from mudroom_offline.plans import Translator

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
    "d.h": ["class API_EXPORT thing {", "static const int thing = 7;", "int thing(int a);"],
}
OTHER_LINES = {
    "a.js": ["import type thing from 'x'", "if (thing()) {", "log('a class thing here')"],
    "b.ts": ["thing()", "function thing$1(a) {"],
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
    assert "Other lines:" not in text
    assert "Lines that look like a definition or declaration;" in text
    rows = [
        f"{path}:{n}:{x}" for path, lines in DEFINITIONS.items() for n, x in enumerate(lines, 1)
    ]
    assert [row for row in rows if f"\n{row}\n" not in text] == []


async def test_a_line_that_only_names_it_is_no_definition(ask: Ask) -> None:
    text = (await ask(_join(OTHER_LINES), "Where is `thing` defined?")).text
    assert text.startswith("`thing` as a whole word is in 28 lines of 14 files in this folder.")
    assert "look like a definition" not in text


@pytest.mark.parametrize("kind", ["fn", "func", "interface", "trait", "module"])
async def test_the_kind_of_a_definition_is_not_its_name(ask: Ask, kind: str) -> None:
    tree = {"a.rs": "const fn run() {}\nfn main() {}\n", "b.rs": "trait Shape {\n}\n"}
    report = await ask(tree, f"Where is {kind} main defined?")
    assert f"`{kind}`" not in report.text and report.reason is Reason.ERROR
    text = (await ask(tree, f"Where is {kind} Shape defined?")).text
    assert "```text\nb.rs:1:trait Shape {\n```" in text


@pytest.mark.parametrize("name", ["Box::Lid", "box.Lid", "Box#Lid"])
async def test_a_qualified_name_is_searched_as_it_is_written(ask: Ask, name: str) -> None:
    tree = {"a.rb": f"module Box\n  class Lid\n  end\nend\n{name}.new\n{name}s\n"}
    text = (await ask(tree, f"Where is `{name}` used?")).text
    assert text.startswith(f"`{name}` was searched as it is written. A line that has only a part")
    assert f"`{name}` as a whole word is in 1 line of 1 file" in text
    assert f"```text\na.rb:5:{name}.new\n```" in text


async def test_a_cut_search_ends_not_done(ask: Ask) -> None:
    tree = {f"a{n}.py": f"{' ' * n}x = thing  # {'-' * 60}\n" * 200 for n in range(9)}
    report = await ask(tree, "Where is `thing`?")
    assert "⚠ Not everything was searched" in report.text and report.reason is Reason.ERROR
    assert report.error == "the model refused the request or did only a part of it"


async def test_a_definition_is_seen_among_very_many_uses(ask: Ask) -> None:
    uses = {f"a{n}.py": f"{' ' * n}x = thing  # {'-' * 60}\n" * 200 for n in range(9)}
    text = (await ask({**uses, "z.py": "class thing:\n    pass\n"}, "Where is `thing`?")).text
    assert "```text\nz.py:1:class thing:\n```" in text and "is in at least" in text
    text = (await ask({"z.py": "x = thing\n"}, "Where is `thing`?")).text
    assert "is in at least" in text and "more lines or files match than one search lists" in text


async def test_a_plain_describe_block_and_the_mocks_of_rspec_are_no_sign_of_it(ask: Ask) -> None:
    tree = {
        "test/helper.rb": "require 'minitest/autorun'\nrequire 'rspec/mocks'\n",
        "test/spec_a.rb": "require_relative 'helper'\n\ndescribe A do\nend\n",
    }
    text = (await ask(tree, "Which testing framework does this project use?")).text
    assert "| **Minitest** |" in text and "**RSpec**" not in text and "its use in 1 file:" in text


async def test_a_version_is_given_where_it_is_written(ask: Ask) -> None:
    tree = {
        "gradle/libs.versions.toml": """[libraries]
junit = { module = "junit:junit", version = "9+181-r4" }
jmh-core = { module = "org.openjdk.jmh:jmh-core", version.ref = "jmh" }
""",
        "Cargo.toml": '[workspace.dependencies]\nsyn = "2.0.81"\n',
        "derive/Cargo.toml": "[dependencies]\nsyn = { workspace = true }\n",
    }
    text = (await ask(tree, "What are the dependencies?")).text
    assert '\n2: junit = { module = "junit:junit", version = "9+181-r4" }\n' in text
    assert "\n3: jmh-core = {" in text
    assert "`Cargo.toml`:\n\n```text\n[workspace/dependencies]\n    syn: 2.0.81\n```" in text
    assert '[dependencies]\n    syn: {"workspace": true}\n' in text


async def test_a_dependency_has_its_section_or_its_line(ask: Ask) -> None:
    package = '{"dependencies": {"box": "1"}, "devDependencies": {"lint": "2"}}'
    tree = {"package.json": package, "requirements.txt": "pytest==8.4\n"}
    tree["tools/package.json"] = '{"dependencies": {"lint": "2"}}'
    text = (await ask(tree, "What are the dependencies?")).text
    sections = "[dependencies]\n    box: 1\n[devDependencies]\n    lint: 2\n"
    assert f"`package.json`:\n\n```text\n{sections}```" in text
    assert "`tools/package.json`:\n\n```text\n[dependencies]\n    lint: 2\n```" in text
    assert "`requirements.txt`:\n\n```text\n1: pytest==8.4\n```" in text


async def test_a_manifest_that_cannot_be_read_is_not_called_empty(ask: Ask) -> None:
    text = (await ask({"package.json": '{"dependencies": {'}, "What are the dependencies?")).text
    assert text.startswith("No packages were read from manifests with known names in this folder.")
    assert "or that were not read to their end (1): `package.json`." in text


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
    assert f"| **{framework}** | Testing framework | a configuration file" in text


async def test_the_version_of_a_framework_is_not_that_of_another_group(ask: Ask) -> None:
    tree = {
        "build.gradle": 'testImplementation "androidx.test.ext:junit:1.3.0"\n'
        'testImplementation "junit:junit:4.13.2"\n',
        "src/test/ATest.java": "import org.junit.Test;\n",
    }
    text = (await ask(tree, "Which testing framework does this project use?")).text
    assert '`testImplementation "junit:junit:4.13.2"` (`build.gradle` 2)' in text
    assert "1.3.0" not in text


async def test_a_maven_dependency_without_a_version_ends_where_it_ends(ask: Ask) -> None:
    item = "<dependency><groupId>g</groupId><artifactId>{}</artifactId>{}</dependency>\n"
    items = item.format("codec", "") + item.format("handler", "<scope>test</scope>")
    text = (
        await ask({"pom.xml": f"<project>{items}</project>"}, "What are the dependencies?")
    ).text
    assert "\n1: <project><dependency><groupId>g</groupId><artifactId>codec<" in text
    assert "\n2: <dependency><groupId>g</groupId><artifactId>handler<" in text


README_ROWS = [
    (
        "# `chip`\n\n`chip` is a router.\n\nThe focus is here.\n",
        ["1:# `chip`", "3:`chip` is a router."],
    ),
    ("Box\n---\n\nBox is a server.\n", ["4:Box is a server."]),
    (
        "[![B](\na)](\nb) ![x][y]\n\n[y]: c.png\n# Box\n\n    code\n\n* [Us](#u)\n\nA wee box.\n",
        ["6:# Box", "12:A wee box."],
    ),
    (
        "<p>Thanks.</p>\n\n# Box: web\n\n- We need help.\n\nBox is a web server. It:\n\n- runs\n",
        ["3:# Box: web", "7:Box is a web server. It:"],
    ),
    (
        "# Box <a href='x'>of a cat</a>\n\nSee it here </a>\n\n[<img src='a'>](b) is a badge\n\n"
        "[x]: https://b.invalid is a link\n\n[Box](x) | [Cat](y) | see more\n\nBox is it all.\n",
        ["11:Box is it all."],
    ),
    ("---\ntitle: A box of cats\n---\n\nBox is it all.\n", ["5:Box is it all."]),
]


@pytest.mark.parametrize(("readme", "rows"), README_ROWS)
async def test_the_heading_and_the_first_prose_of_a_readme_are_quoted(
    ask: Ask, readme: str, rows: list[str]
) -> None:
    text = (await ask({"README.md": readme}, "What is this project?")).text
    quote = "".join(f"README.md:{row}\n" for row in rows)
    assert f"\n\n```text\n{quote}```\n\nNo line that" in text, text


@pytest.mark.parametrize(
    "name", ["Readme.md", "README.MD", "rEADME", "Contributing.rst", "MAKEFILE"]
)
async def test_test_commands_are_read_in_any_letter_case_of_a_name(ask: Ask, name: str) -> None:
    text = (await ask({name: "test:\n    make test\n", "a.py": ""}, "How do I run the tests?")).text
    assert f"\n{name}:2:    make test\n" in text
    text = (await ask({"lib/a,{b}.py": ""}, "How do I run the tests in lib/?")).text
    assert text.startswith("No line that looks like a test command was recognised")


async def test_a_readme_and_a_licence_are_read_in_any_letter_case_of_a_name(ask: Ask) -> None:
    tree = {"lib/ReadMe.MD": "# Box\n\nBox is it all.\n", "lib/license.Txt": "MIT License\n"}
    text = (await ask(tree, "Summarize the project in lib/.")).text
    assert "lib/ReadMe.MD:1:# Box\nlib/ReadMe.MD:3:Box is it all.\n" in text
    assert "lib/license.Txt:1:MIT License\n" in (await ask(tree, "licence in lib/?")).text


@pytest.mark.parametrize(("link", "prompt"), [("README.md", ""), ("lib/README.rst", " in lib/")])
async def test_a_readme_that_is_a_link_is_quoted(
    ask: Ask, tmp_path: Path, link: str, prompt: str
) -> None:
    path = tmp_path / "tree" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(Path(os.path.relpath(tmp_path / "tree" / "doc" / "about.txt", path.parent)))
    tree = {"doc/about.txt": "# Box\n\nBox is a small router.\n"}
    text = (await ask(tree, f"Summarize the project{prompt}.")).text
    assert f"\n{link}:3:Box is a small router.\n```\n" in text


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
            "Lines: `6: int f",
        ),
        (
            "e.h",
            "void Log(const char* a, int b)\n#if A\n;\n#endif\nint f(int a)\n{\n",
            "Lines: `5: int f",
        ),
        (
            "m.rs",
            "/// Adds.\n#[macro_export]\nmacro_rules! a {\n}\npub fn f() {}\n",
            "Lines: `5: pub fn f",
        ),
        ("o.cs", "public class O {\n    object tmp = f();\n}\n", "Lines: `1: public class O"),
        (
            "t.py",
            'class T:\n    """\n    t = T("a")\n\n    return t.run()\n    """\n',
            "Lines: `1: class T",
        ),
        (
            "io.js",
            "// Built-in modules.\nimport fs from 'fs'\n\nexport const a = 1\n",
            "Lines: `4: export const a",
        ),
        (
            "u.ts",
            "/**\n * Sends mail.\n * @public\n */\nexport class U {}\n",
            "“Sends mail.”. Lines: `5: export class U {}`",
        ),
        (
            "S.swift",
            "extension URL {}\n\npublic class S {\n    class func a() {}\n    private func b()\n",
            "Lines: `3: public class S",
        ),
    ],
)
def test_a_summary_reads_whole_sentences_about_the_file(
    path: str, text: str, expected: str
) -> None:
    summary = describe_file(FileText(path, text), Translator())
    assert expected in summary and ("“" in summary) is ("“" in expected), summary


def _join(lines: dict[str, list[str]]) -> dict[str, str]:
    return {path: "\n".join(rows) + "\n" for path, rows in lines.items()}


@pytest.mark.parametrize(
    ("name", "line", "is_quoted"),
    [
        ("mix.exs", "      description: description(),", False),
        ("a.gemspec", "  s.description = <<~TEXT", False),
        ("a.gemspec", "  s.summary = %q{Boxes for cats}", True),
    ],
)
async def test_a_description_is_text_and_no_code(
    ask: Ask, name: str, line: str, is_quoted: bool
) -> None:
    text = (await ask({name: f"{line}\n"}, "What is this project?")).text
    assert (f"\n{name}:1:{line}\n" in text) is is_quoted


async def test_quoted_lines_are_unchanged_also_with_backticks(ask: Ask) -> None:
    line = "    x = `thing` + ```thing``` | thing  "
    text = (await ask({"a.js": f"{line}\n"}, "Where is `thing` used?")).text
    assert f"\n````text\na.js:1:{line}\n````" in text


async def test_test_commands_are_commands_and_no_prose(ask: Ask) -> None:
    readme = "To start, just test it.\nmake tests pass here.\n\n    make test\n\nRun `npm test`.\n"
    readme += "- install `tox`\n- `pytest -n 2`\n\n    $ tox\n    $ tox -e lint\n"
    nightly = "jobs:\n  a:\n    steps:\n      - run: go test ./other/...\n"
    tree = {"README.md": readme, ".github/workflows/nightly.yml": nightly}
    text = (await ask(tree, "How do I run the tests?")).text
    rows = "README.md:4:    make test\nREADME.md:6:Run `npm test`.\nREADME.md:8:- `pytest -n 2`\n"
    rows += "README.md:10:    $ tox\n"
    assert f"```text\n{rows}```" in text


@pytest.mark.parametrize(
    ("line", "is_quoted"),
    [
        ("* `pytest` - runs all tests", True),
        ("Run tests using `bin/test`.", True),
        ("    ./script/test", True),
        ("npm test # Runs all tests", True),
        ("The folder bin/test_data has files.", False),
    ],
)
async def test_test_commands_in_a_list_and_scripts_are_quoted(
    ask: Ask, line: str, is_quoted: bool
) -> None:
    text = (await ask({"CONTRIBUTING.md": f"{line}\n"}, "How do I run the tests?")).text
    assert (f"\nCONTRIBUTING.md:1:{line}\n" in text) is is_quoted, text
    assert is_quoted or text.startswith("No line that looks like a test command was recognised in")


async def test_samples_and_tests_are_no_part_of_the_stack(ask: Ask) -> None:
    tree = {
        "a.py": "x = 1\n",
        "tests/run.rb": "p 1\n",
        "tests/pom.xml": "<project/>\n",
        "samples/app/go.mod": "module a\n",
        "samples/app/a.go": "package a\n",
    }
    text = (await ask(tree, "What is the technology stack?")).text
    table, _, left_out = text.partition("Left out:")
    assert "| Python | Language | `*.py`: 1 file |" in table
    assert not any(name in table for name in ("Ruby", "Maven", "Go"))
    assert "`samples`" in left_out and "`tests`" in left_out


async def test_a_summary_of_a_folder_names_all_its_files(ask: Ask) -> None:
    tree = {"lib/a.py": "x = 1\n", "lib/b.xyz": "one\n", "lib/c.png": "\0\0\n", "d.py": "x = 1\n"}
    text = (await ask(tree, "Summarise each file in lib/")).text
    assert text.startswith("3 of 3 files that match `**/*` in `lib/`:")
    assert (
        all(f"`lib/{name}`" in text for name in ("a.py", "b.xyz", "c.png")) and "d.py" not in text
    )


async def test_very_many_files_are_not_summarised(ask: Ask) -> None:
    tree = {f"lib/m{n}.py": "x\n" for n in range(401)}
    report = await ask(tree, "Summarise all .py files")
    assert report.reason is Reason.ERROR and "401 files in this folder match" in report.error


async def test_a_definition_in_a_group_is_listed_first_and_nothing_is_denied(ask: Ask) -> None:
    tree = {"a.go": 'package a\n\nconst (\n\tThing = "t"\n)\n', "b.md": "Thing is here.\n"}
    text = (await ask(tree, "Where is Thing defined?")).text
    assert "Which of them is a definition was not established:" in text
    assert text.index("a.go:4:") < text.index("b.md:1:") and "No line" not in text


@pytest.mark.parametrize("name", ["save!", "valid?", "main"])
async def test_a_quoted_name_is_searched_as_it_is(ask: Ask, name: str) -> None:
    tree = {"a.rb": f"def {name}\nend\ndef other\nend\n"}
    text = (await ask(tree, f"Where is `{name}` defined?")).text
    assert text.startswith(f"`{name}` as a whole word is in 1 line of 1 file in this folder.")
    assert f"the other lines may have more:\n\n```text\na.rb:1:def {name}\n```" in text


async def test_a_gem_is_no_package_of_javascript(ask: Ask) -> None:
    tree = {"gemfiles/a.gemfile": 'gem "mocha"\ngem "rspec"\n', "package.json": "{}"}
    text = (await ask(tree, "Which testing framework does this project use?")).text
    table = text.partition("Left out:")[0]
    assert '| **mocha (gem)** | Testing library | listed in manifests: `gem "mocha"`' in table
    assert "**RSpec**" in table and "**Mocha**" not in table


async def test_answers_say_that_tracked_files_may_be_left_out(ask: Ask) -> None:
    tree = {".gitignore": "*.log\n", "a.log": "thing\n", "b.py": "thing = 1\n"}
    rule = "files that .gitignore rules exclude (tracked ones too)"
    for prompt in (
        "How many files are there?",
        "How many .log files are there?",
        "Where is `thing` used?",
        "What is the technology stack?",
    ):
        assert rule in (await ask(tree, prompt)).text
