"""Shape of the source: width, sizes, folders, docstrings, names, extras. The limits help readers.

Code that is squeezed or split to meet a number breaks the intent.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "src").rglob("*.py"))
TEXTS = {path: path.read_text(encoding="utf-8") for path in FILES}
LINES = sum(text.count("\n") for text in TEXTS.values())

MAX_WIDTH = 100
MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 60
MAX_ATTRIBUTES = 16
MAX_OFFLINE_LINES = 1_500
"""In `mudroom_offline`: a model that follows rules does little, and does it right."""
MAX_PACKED_ASSIGNMENTS = 1.0
"""For 1,000 lines."""
MAX_VAGUE_NAMES = 3.0
"""For 1,000 lines."""
MAX_UNCLEAR_DOCSTRINGS = 0.02
"""Part of all docstrings."""

RELATIVE_CLAUSE = re.compile(r"^(What|Whether|Where|Who|Whoever|How|Why|That which|It )\b")
QUAINT = re.compile(
    r"\b(nobody|whoever|somebody|a word\b|let go of|dead process|go(?:es)? "
    r"on\b|anew|mend(?:s|ed)?\b"
    r"|heed|wish(?:es)?\b|shall\b|taken for|what (?:is|was|it|has) |told of|lest|thereof"
    r"|of one's own|of yours)",
    re.IGNORECASE,
)
VAGUE_NAMES = {"found", "given", "said", "told"}
VAGUE_MODULES = ("manager", "handler", "helper", "utils", "base", "impl")
"""Words that a module's name does not contain: they do not say what is in it."""
OLD_MODULES = """
deeds desk talk going_on conversing spoken paper crew wishes gist verdict recall record sendable
guard ending answers changes head keys rights findings places about marking view words warming
walls opened prepared finishing recorded completing pasted reflow rows steps screens lines
temporary protected replaying replayed library _gate _heads _failures _agreed _drop _walls _walled
_guard _launch _launcher plain probe _scan _globs book dialects samples strict assembly
"""
OLD_CLASSES = """
Deeds Desk Talk Face Paper Wish House Crew Parts Ready Lanes Announced Barrier Ongoing Keeper Stage
Trial Terms Found Door Home Given Piece Told Judged Changing Guard Answers Wishes
"""
IMPORT_NAMES = {
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry",
    "opentelemetry-sdk": "opentelemetry",
    "pydantic-ai-slim": "pydantic_ai",
}
"""Distributions whose module has another name."""

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Function = ast.FunctionDef | ast.AsyncFunctionDef


def get_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@functools.cache
def list_nodes() -> list[tuple[Path, ast.AST]]:
    """Return all nodes of all files. To walk the trees again would take each test seconds."""
    return [(path, node) for path, text in TEXTS.items() for node in ast.walk(ast.parse(text))]


@functools.cache
def list_docstrings() -> list[tuple[str, str]]:
    """Return place and text of every docstring."""
    documented: list[tuple[str, str]] = []
    for path, node in list_nodes():
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            documented.append((f"{get_name(path)}:{getattr(node, 'lineno', 1)}", text))
    return documented


def is_packed(node: ast.AST) -> bool:
    """Return True for `a, b = x, y`, unless it swaps."""
    if not (isinstance(node, ast.Assign) and len(node.targets) == 1):
        return False
    target = node.targets[0]
    value = node.value
    if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
        return False
    if len(target.elts) != len(value.elts):
        return False
    return {ast.unparse(item) for item in target.elts} != {ast.unparse(i) for i in value.elts}


def count_body_lines(node: Function) -> int:
    """Count the lines of a function without its docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        docstring = node.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def list_attributes(node: ast.ClassDef) -> set[str]:
    """Return the names that a class assigns on `self`."""
    return {
        item.attr
        for item in ast.walk(node)
        if isinstance(item, ast.Attribute)
        and isinstance(item.ctx, ast.Store)
        and isinstance(item.value, ast.Name)
        and item.value.id == "self"
    }


def test_lines_are_not_too_wide() -> None:
    wide = [
        f"{get_name(path)}:{number}"
        for path, text in TEXTS.items()
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > MAX_WIDTH
    ]
    assert not wide


def test_formatter_is_never_switched_off() -> None:
    assert not [path for path, text in TEXTS.items() if re.search(r"#\s*fmt:\s*(skip|off)", text)]


def test_files_are_small() -> None:
    large = [get_name(path) for path, text in TEXTS.items() if text.count("\n") > MAX_FILE_LINES]
    assert not large, "split them by responsibility"


def test_functions_are_small() -> None:
    functions = [(path, node) for path, node in list_nodes() if isinstance(node, Function)]
    large = [
        f"{get_name(path)}: {node.name}"
        for path, node in functions
        if count_body_lines(node) > MAX_FUNCTION_LINES
    ]
    assert not large, "name their steps"


def test_classes_have_few_attributes() -> None:
    classes = [(path, node) for path, node in list_nodes() if isinstance(node, ast.ClassDef)]
    assert not [
        f"{get_name(path)}: {node.name}"
        for path, node in classes
        if len(list_attributes(node)) > MAX_ATTRIBUTES
    ]


def test_the_offline_model_is_small() -> None:
    texts = [text for path, text in TEXTS.items() if "mudroom_offline" in path.parts]
    assert sum(text.count("\n") for text in texts) <= MAX_OFFLINE_LINES


def test_assignments_are_not_packed() -> None:
    packed = [f"{get_name(path)}:{node.lineno}" for path, node in list_nodes() if is_packed(node)]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert len(packed) <= LINES / 1000 * MAX_PACKED_ASSIGNMENTS, packed


def test_conditional_expressions_are_not_statements() -> None:
    assert not [
        f"{get_name(path)}:{node.lineno}"
        for path, node in list_nodes()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.IfExp)
    ]


def test_every_module_has_a_docstring() -> None:
    modules = [(path, node) for path, node in list_nodes() if isinstance(node, ast.Module)]
    assert len(modules) == len(FILES)
    assert not [get_name(path) for path, module in modules if not ast.get_docstring(module)]


def test_function_docstrings_are_imperative() -> None:
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "check", "--isolated", "--select", "D401", "--output-format", "concise"]
    ran = subprocess.run([*command, "src"], cwd=ROOT, capture_output=True, text=True)
    assert not [line for line in ran.stdout.splitlines() if " D401 " in line]


def test_docstrings_do_not_start_with_a_relative_clause() -> None:
    texts = list_docstrings()
    unclear = [f"{place} {text[:60]}" for place, text in texts if RELATIVE_CLAUSE.match(text)]
    assert len(unclear) <= len(texts) * MAX_UNCLEAR_DOCSTRINGS, unclear


def test_docstrings_have_no_quaint_phrases() -> None:
    texts = list_docstrings()
    quaint = [f"{place} {match[0]!r}" for place, text in texts if (match := QUAINT.search(text))]
    assert len(quaint) <= len(texts) * MAX_UNCLEAR_DOCSTRINGS, quaint


def test_modules_have_telling_names() -> None:
    stems = {path.stem.lower() for path in FILES}
    assert not stems & set(OLD_MODULES.split())
    assert not [stem for stem in stems if any(word in stem for word in VAGUE_MODULES)]


def test_classes_have_telling_names() -> None:
    names = {node.name for _, node in list_nodes() if isinstance(node, ast.ClassDef)}
    assert not names & set(OLD_CLASSES.split())


def test_variables_have_telling_names() -> None:
    vague = [
        f"{get_name(path)}:{node.lineno} {node.id}"
        for path, node in list_nodes()
        if isinstance(node, ast.Name) and node.id in VAGUE_NAMES
    ]
    assert len(vague) <= LINES / 1000 * MAX_VAGUE_NAMES, vague


def test_every_extra_has_code() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    imported: set[str] = set()
    for _, node in list_nodes():
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported.add((node.module or "").partition(".")[0])
    for extra, needs in project.get("optional-dependencies", {}).items():
        names = [re.split(r"[\[<>=!~; ]", need)[0] for need in needs]
        modules = {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in names}
        assert modules & imported, f"no code imports the extra {extra}"
