"""Pages of the API reference: every public name with its arguments, its text and an example.

griffe reads the sources. Nothing is imported, so signatures and defaults are as they are written.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent

import griffe

SOURCE = Path(__file__).resolve().parents[1] / "src"
DOORS = (
    "mudroom",
    "mudroom.driving",
    "mudroom.events",
    "mudroom.ports",
    "mudroom.permissions",
    "mudroom.scope",
    "mudroom.testing",
    "mudroom.tracing",
    "mudroom.views",
)
INDEX = """# API reference

Everything that these modules export; all other modules are internal. `session` in an example is an
open `Session`. The tests run every example.

| module | content |
|---|---|"""
SECTION = re.compile(r"^(?:Arguments|Attributes):\n((?: .*\n?|\n(?= ))+)", re.MULTILINE)
INDENTED = re.compile(r"^((?:    .*\n?|\n(?=    ))+)", re.MULTILINE)
MARKUP = re.compile(r"([*<])")
FIRST_MEMBERS = {"Session": ("run", "stream", "run_sync", "task", "map", "stream_task", "watch")}
"""Members that a reader of a class looks for first; the others keep the order of the source."""

COMMON = {
    "after": "position in the journal; 0 is its beginning.",
    "agent": "the agent, or its name.",
    "arguments": "arguments of the call.",
    "ask": "rules for calls that someone must confirm.",
    "at": "time of the event, in seconds since 1970.",
    "attempt": "number of the attempt, from 1.",
    "base": "folder that the paths of the rule are relative to.",
    "brief": "input of the run.",
    "call": "the tool call.",
    "call_id": "id of the tool call.",
    "category": "kind of the tool.",
    "child": "brief of the child.",
    "command": "the command, as a shell reads it.",
    "content": "the blocks of the message.",
    "data": "the bytes.",
    "description": "text for the model or the reader.",
    "error": "message of the error; for a tool result: true if it is an error.",
    "event": "the event.",
    "events": "the events, in their order.",
    "function": "the function.",
    "id": "id, unique in its session.",
    "key": "name of the value.",
    "message": "the message.",
    "message_id": "id of the message.",
    "model": "model string, such as `anthropic:sonnet`.",
    "name": "name.",
    "on_message": "function that gets each text and one line for each tool call; it may be async.",
    "origin": "file, flag or variable that it comes from, for messages.",
    "output_type": "the requested values, checked.",
    "outputs": "the requested values: a type, a JSON Schema, or names; None asks for prose.",
    "parent": "brief of the parent.",
    "path": "path in the workspace, relative to its root.",
    "prompt": "a text, or text and image blocks.",
    "prompt_id": "`session#run#turn`, unique for each turn.",
    "prompts": "the prompts, one for each run.",
    "read_only": "true opens without the right to write.",
    "record": "the events that several journals share.",
    "remedy": "what to do.",
    "run": "id of the run; empty for an event of the session.",
    "run_id": "id of the run: `1` is the first root run, `1.3.2` a child.",
    "runtime": "services of the session; `SubAgentScope.create` passes them.",
    "seconds": "duration in seconds.",
    "session": "id of the session.",
    "spec": "the workspace that the brief asks for.",
    "start": "seconds since 1970.",
    "status": "HTTP status; 0 for a lost connection.",
    "text": "the text.",
    "texts": "the texts.",
    "title": "short text for screens.",
    "tool": "name of the tool.",
    "turn": "number of the turn; 0 before the first one.",
    "types": "event classes to read; empty reads all.",
    "value": "the value.",
    "where": "place of the fault.",
    "work": "the coroutine.",
    "workspace": "the files that the run sees.",
}
"""Arguments that mean the same everywhere, for docstrings that do not repeat them."""


@cache
def load_package() -> griffe.Module:
    """Return the package as griffe reads it."""
    logging.getLogger("griffe").setLevel(logging.CRITICAL)
    package = griffe.load("mudroom", search_paths=[SOURCE], resolve_aliases=True)
    assert isinstance(package, griffe.Module)
    return package


def get_file(door: str) -> str:
    """Return the file name of the page of a public module."""
    return f"{door.removeprefix('mudroom.')}.md"


def get_door(door: str) -> griffe.Module:
    """Return a public module."""
    package = load_package()
    module = package if door == "mudroom" else package[door.partition(".")[2]]
    assert isinstance(module, griffe.Module)
    return module


def list_names(door: str) -> list[str]:
    """Return the public names of a module, in the order of its `__all__`."""
    return [str(name) for name in get_door(door).exports or ()]


def get_object(door: str, name: str) -> griffe.Object:
    """Return the definition of a public name."""
    thing = get_door(door)[name]
    return thing.final_target if isinstance(thing, griffe.Alias) else thing


def escape(words: str) -> str:
    """Return the words of a docstring as Markdown; a link stays a link."""
    return words if "](" in words else MARKUP.sub(r"\\\1", words)


def get_descriptions(thing: griffe.Object) -> dict[str, str]:
    """Return the descriptions of the parameters; a class has those of its bases, too."""
    bases = reversed(thing.mro()) if isinstance(thing, griffe.Class) else ()
    return {
        name: words
        for each in (*bases, thing)
        for name, words in describe_parameters(get_text(each)).items()
    }


def get_text(thing: griffe.Object | griffe.Module) -> str:
    """Return the docstring without indentation."""
    return thing.docstring.value if thing.docstring else ""


def extract_example(text: str) -> str:
    """Return the example program in a docstring."""
    return dedent(text.partition("Example:\n")[2])


def is_protocol(thing: griffe.Class) -> bool:
    """Return True for a port."""
    return any(str(base).startswith("Protocol") for base in thing.bases)


def is_enum(thing: griffe.Class) -> bool:
    """Return True for an enumeration."""
    return any(
        str(base).rpartition(".")[2] in ("Enum", "StrEnum", "IntEnum") for base in thing.bases
    )


def list_fields(thing: griffe.Class) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and default of the fields of a struct, those of its bases included."""
    fields: dict[str, tuple[str, str, str]] = {}
    for cls in [*reversed(thing.mro()), thing]:
        for name, member in cls.members.items():
            if isinstance(member, griffe.Attribute) and not name.startswith("_"):
                written = str(member.annotation or "")
                if written and "property" not in member.labels and "ClassVar" not in written:
                    fields[name] = (name, written, str(member.value or ""))
    yield from fields.values()


def list_parameters(thing: griffe.Object) -> list[tuple[str, str, str]]:
    """Return name, type and default of the parameters of a function or a class."""
    if isinstance(thing, griffe.Class):
        if is_protocol(thing) or is_enum(thing):
            return []
        start = next(
            (cls.members["__init__"] for cls in [thing, *thing.mro()] if "__init__" in cls.members),
            None,
        )
        if start is None:
            return list(list_fields(thing))
        thing = start.final_target if isinstance(start, griffe.Alias) else start
    if not isinstance(thing, griffe.Function):
        return []
    return [
        (
            {"variadic positional": "*", "variadic keyword": "**"}.get(kind.value, "") + each.name,
            str(each.annotation or ""),
            str(
                each.default
                if each.default is not None and not kind.value.startswith("var")
                else ""
            ),
        )
        for each in thing.parameters
        if each.name not in ("self", "cls")
        and (kind := each.kind or griffe.ParameterKind.positional_or_keyword)
    ]


def list_members(thing: griffe.Class) -> list[griffe.Object]:
    """Return the public methods and properties of a class: FIRST_MEMBERS, then internal bases."""
    hidden = [base for base in thing.mro() if base.name not in list_classes()]
    members = [
        member
        for cls in (*hidden, thing)
        for name, member in cls.members.items()
        if not name.startswith("_")
        and not isinstance(member, griffe.Alias)
        and (isinstance(member, griffe.Function) or "property" in member.labels)
    ]
    first = FIRST_MEMBERS.get(thing.name, ())
    return sorted(
        members, key=lambda each: first.index(each.name) if each.name in first else len(first)
    )


def describe_parameters(text: str) -> dict[str, str]:
    """Return the descriptions in the sections "Arguments:" and "Attributes:" of a docstring."""
    found: dict[str, str] = {}
    for section in SECTION.findall(text):
        joined = re.sub(r"\n\s{2,}", " ", dedent(section).strip())
        for entry in re.split(r"\n|(?<=\.) (?=[a-z_]+(?:, [a-z_]+)*: )", joined):
            names, colon, words = entry.partition(": ")
            if colon and re.fullmatch(r"\*{0,2}[a-z_]+(?:, [a-z_]+)*", names):
                found |= {name.lstrip("*"): words for name in names.split(", ")}
    return found


def find_description(name: str, annotation: str, thing: griffe.Object) -> str:
    """Return the description of a parameter: its own, that of its type, or the common one."""
    name = name.lstrip("*")
    text = get_text(thing)
    if name == "options" and "Session" in text:
        return f"the fields of {link('SessionOptions')}."
    if own := get_descriptions(thing).get(name):
        return own
    for word in re.findall(r"\w+", annotation):
        if word in list_classes():
            return f"see {link(word)}."
    prose = text.partition("Example:\n")[0]
    if re.search(rf"`{name}`", prose):
        return "see the text."
    return COMMON.get(name, "")


@cache
def list_classes() -> dict[str, str]:
    """Return the public classes, with the module that describes them."""
    return {
        name: door
        for door in reversed(DOORS)
        for name in list_names(door)
        if get_object(door, name).is_class
    }


def link(name: str) -> str:
    """Return a link to the description of a public class."""
    return f"[{name}]({get_file(list_classes()[name])}#{name.lower()})"


def format_signature(thing: griffe.Object, name: str) -> str:
    """Return the signature as a code block; "" where there is none."""
    if isinstance(thing, griffe.Class) and (is_protocol(thing) or is_enum(thing)):
        return ""
    back = str(getattr(thing, "returns", None) or "") if not isinstance(thing, griffe.Class) else ""
    parameters = [
        each + (f": {kind}" if kind else "") + (f" = {default}" if default else "")
        for each, kind, default in list_parameters(thing)
    ]
    head = ("async " if "async" in thing.labels else "") + name
    result = f" -> {back}" if back else ""
    line = f"{head}({', '.join(parameters)}){result}"
    if "property" in thing.labels:
        line = f"{name}: {getattr(thing, 'annotation', None) or back}"
    elif len(line) > 90:
        line = f"{head}(\n" + "".join(f"    {each},\n" for each in parameters) + f"){result}"
    return f"```python\n{line}\n```"


def format_text(text: str) -> Iterator[str]:
    """Yield the prose of a docstring as Markdown; indented parts are code or a list of names."""
    prose = SECTION.sub("", text.partition("Example:\n")[0]).strip("\n")
    for part in INDENTED.split(prose):
        if part.strip("\n").startswith("    "):
            kind = "python" if "import " in part else "text"
            yield f"```{kind}\n{dedent(part).strip()}\n```"
        else:
            yield from (MARKUP.sub(r"\\\1", each) for each in re.split(r"\n{2,}", part.strip("\n")))


def format_parameters(thing: griffe.Object) -> Iterator[str]:
    """Yield a list of the parameters with their descriptions."""
    rows = {name: find_description(name, kind, thing) for name, kind, _ in list_parameters(thing)}
    rows = {name.lstrip("*"): words for name, words in rows.items() if words}
    rows |= {name: words for name, words in get_descriptions(thing).items() if name not in rows}
    if rows:
        yield "\n".join(f"- `{name}`: {escape(words)}" for name, words in rows.items())


def format_entry(thing: griffe.Object, name: str) -> Iterator[str]:
    """Yield the parts of one entry: signature, text, arguments, example."""
    if thing.is_class or thing.is_function or "property" in thing.labels:
        yield format_signature(thing, name.rpartition(".")[2])
    text = get_text(thing)
    yield from format_text(text)
    if isinstance(thing, griffe.Class) and is_enum(thing):
        yield ", ".join(
            f"`{member}`"
            for member, value in thing.members.items()
            if value.is_attribute and member.isupper()
        )
    if "property" not in thing.labels:
        yield from format_parameters(thing)
    if program := extract_example(text):
        yield f"```python\n{program}\n```"


def build_page(door: str) -> Iterator[str]:
    """Yield the parts of the page of one public module."""
    text = get_text(get_door(door))
    yield f"# {door}"
    yield from format_text(text)
    if program := extract_example(text):
        yield f"```python\n{program}\n```"
    for name in list_names(door):
        yield f"## {name}"
        first = list_classes().get(name, door)
        if first != door:
            yield f"The same as {link(name)} of `{first}`."
            continue
        thing = get_object(door, name)
        yield from (part for part in format_entry(thing, name) if part)
        for member in list_members(thing) if isinstance(thing, griffe.Class) else ():
            yield f"### {name}.{member.name}"
            yield from (part for part in format_entry(member, f"{name}.{member.name}") if part)


def build_pages() -> dict[str, str]:
    """Return the pages of the reference by file name."""
    pages = {get_file(door): "\n\n".join(build_page(door)) + "\n" for door in DOORS}
    rows = [
        f"| [`{door}`]({get_file(door)}) | {get_text(get_door(door)).splitlines()[0]} |"
        for door in DOORS
    ]
    pages["README.md"] = "\n".join([INDEX, *rows]) + "\n"
    return pages
