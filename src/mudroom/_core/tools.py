"""Tools: each has a name, a text for the model, a JSON Schema and an async function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import MudroomError
from .json_values import OBJECT_TYPES, clean_json, clean_text, is_clean_json
from .messages import ImageBlock, ToolResultBlock
from .schemas import read_leniently
from .type_checks import NamedFields


class Effect(StrEnum):
    """What a tool may change: decides which calls may run again after a crash, or in parallel.

    Example:
        @tool(effect=Effect.PURE)
        def double(number: int) -> int:
            "Twice a number."
            return 2 * number
    """

    PURE = "pure"
    """Changes nothing: may run again, in parallel, after the changes asked for before it."""
    KEYED = "keyed"
    """Acts on one thing, its key (a file, a child): exactly once, one call per key at a time."""
    EFFECTFUL = "effectful"
    """May do anything: at most once; alone, unless its tool sets `is_parallel`."""


class ToolCategory(StrEnum):
    """What a tool acts on. Permission modes and rules depend on it."""

    READ = "read"
    """Reads files, or nothing outside the run."""
    WRITE = "write"
    """Changes one file of the workspace."""
    RUN = "run"
    """Runs a shell command."""
    NETWORK = "network"
    """Sends a request to a host."""
    AGENT = "agent"
    """Acts on runs: starts a child run, or returns a value to the parent."""
    BOARD = "board"
    """Changes the task board of the project."""


class ToolResult(Struct, metaclass=NamedFields, frozen=True, gc=False, omit_defaults=True):
    """The result of a tool call, for its three readers: the model, the user and the developer.

    Arguments:
        text: for the model.
        error: true if the call failed; `text` should then say what to do instead.
        display: one line for the user; "" means the first line of `text`.
        detail: for debugging; JSON values only.
        reads, changes: files the tool read or changed, relative to the workspace.
        observed_changes: other files that changed while an effectful call ran, through a command
            or something else at the time. Set by the engine.
        parallel_runs: ids of other runs whose commands ran on the same files at the same time. Set
            by the engine.
        unknown_changes: why more may have changed, or "". The engine adds its own reasons.
        spill: path of the full output if `text` is only its head and tail.
        images: images for the model, after the text. Models without vision get placeholders.
        context: text from hooks for the model, after the result.

    Example:
        @tool
        def stamp(path: str) -> ToolResult:
            "Stamp a document."
            return ToolResult(f"stamped {path}", display="stamped", changes=(path,))
    """

    text: str
    error: bool = False
    display: str = ""
    detail: dict[str, Any] = {}
    reads: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    spill: str = ""
    images: tuple[ImageBlock, ...] = ()
    observed_changes: tuple[str, ...] = ()
    unknown_changes: str = ""
    context: str = ""
    parallel_runs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # msgspec does not check types on construction, and a record could not hold other values.
        if not isinstance(self.error, bool) or not isinstance(self.detail, OBJECT_TYPES):
            raise TypeError("error of a ToolResult must be a bool, and detail a dict")
        if isinstance(self.reads, str) or isinstance(self.changes, str):
            raise TypeError("reads and changes of a ToolResult must be sequences of texts")
        texts = (self.text, self.display, self.spill, self.context, *self.reads, *self.changes)
        for kind in set(map(type, texts)):
            if not issubclass(kind, str):
                raise TypeError(f"a ToolResult has {kind.__name__} in place of a text")


def clean_result(result: ToolResult) -> ToolResult:
    own = (result.text, result.display, result.spill, result.context)
    texts = (*own, *result.reads, *result.changes)
    if all(map(str.isascii, texts)) and is_clean_json(result.detail):
        return result
    return replace(
        result,
        text=clean_text(result.text),
        display=clean_text(result.display),
        detail=clean_json(result.detail),
        reads=tuple(map(clean_text, result.reads)),
        changes=tuple(map(clean_text, result.changes)),
        spill=clean_text(result.spill),
        context=clean_text(result.context),
    )


def join_reasons(*reasons: str) -> str:
    """Join several `unknown_changes`, each reason once, separated by "; "."""
    # Sorted, because after a resume or in a replay the reasons may arrive in another order.
    return "; ".join(sorted({each for reason in reasons for each in reason.split("; ") if each}))


def make_result_block(call_id: str, name: str, result: ToolResult) -> ToolResultBlock:
    text = f"{result.text}\n\n{result.context}" if result.context else result.text
    return ToolResultBlock(call_id, name, text, result.error, images=result.images)


def find_no_key(_: object) -> str | None:
    """Return None: calls of the tool act on nothing in particular."""
    return None


PreviewLine = tuple[str, str]
"""A line of a call's preview on screens: a sign and a text.

Signs: "+" added, "-" removed, " " unchanged, "" not part of a difference.
"""


ToolView = Literal["", "command", "diff", "content", "lines", "todos", "run"]
"""How the viewer shows a call, apart from its title.

"": arguments and result. "command": `command` and output. "diff": `old_string` and `new_string`, or
`edits`. "content": `content` as new lines. "lines": the result with line numbers. "todos": `todos`.
"run": `prompt`, and the child run that the call starts.
"""


class Tool(Struct, metaclass=NamedFields, frozen=True, kw_only=True):
    """A tool. It is a plain value: to register a tool, put it into a list.

    Everything about a tool is here; permissions and screens keep no tables of tool names.

    Arguments:
        name: the name the model calls it by.
        description: text for the model.
        parameters: JSON Schema of the arguments, an object.
        parse: converts the model's arguments to the second argument of `run`. Raises ValueError
            naming the wrong argument and the reason.
        run: takes a ToolContext and the parsed arguments, returns a ToolResult. An exception
            becomes an error result for the model.
        effect: see Effect.
        get_key: takes the parsed arguments, returns the file or other thing the call acts on, or
            None.
        is_parallel: true if a call of this effectful tool only has to wait for earlier calls that
            may change anything.
        argument_aliases: alternative argument names, each with its name in `parameters`.
        ignored_arguments: arguments of other programs' tools that have no effect here.
        adapt: takes the name the model called the tool by, in lower case, and the renamed
            arguments. Returns them in this tool's terms, since other programs use other units, or
            a list in place of a text. Raises ValueError for what the tool cannot do.
        needs_confirmation: true if a user must approve each call.
        confirmation_reason: why a user must approve each call even if a rule allows it, or "".
        forward: takes the arguments, returns the name and arguments of the tool to call instead.
            Raises ValueError if the arguments name none.
        make_reminder: takes a ToolContext, returns a note to add to a turn's results, or None.
        category: see ToolCategory; None means READ for a pure tool, else no category.
        path_argument: name of the argument that is a path, which permission rules match. An empty
            value means the workspace.
        is_search: true if the tool reads all files below its path.
        rule_argument: name of the argument that permission rules match if there is no
            `path_argument`: a command, an agent's name, an address.
        is_stateful: true if the tool keeps a memo; a resumed run repeats its calls to restore it.
        title_argument: name of the argument that describes a call in one line; by default the rule
            or path argument, else the first text.
        view: see ToolView; "run" for tools that start child runs.
        preview: takes arguments and ToolResult, returns the lines screens show of a call.
        preview_lines: number of these lines to show; 0 shows the call in one line.
        propose: takes a Workspace and validated arguments, returns the lines of the change the call
            would make, shown when the user is asked to approve it.
        is_provider_tool: true if the provider runs the tool; `run` is never called.
        needs_children: true if only runs that may start children get the tool.
        offered_to: which runs get the tool by default: "all", only prompts ("root"), or none until
            an agent names it ("request"). An agent that names the tool always gets it.
        keeps_results: true if its results survive when the engine clears old ones.
        uses_context: true if `run` uses its ToolContext. If not, the session's process can execute
            calls for runs in worker processes.
        reference: "module:name" by which worker processes import the tool, or "".

    Example:
        async def run(context: ToolContext, arguments: dict) -> ToolResult:
            return ToolResult(arguments["word"] * 2)

        twice = Tool(
            name="twice",
            description="Repeats a text.",
            parameters={"type": "object"},
            parse=dict,
            run=run,
        )
    """

    name: str
    description: str
    parameters: dict[str, Any]
    parse: Callable[[dict[str, Any]], Any]
    run: Callable[[Any, Any], Awaitable[ToolResult]]
    effect: Effect = Effect.EFFECTFUL
    get_key: Callable[[Any], str | None] = find_no_key
    is_parallel: bool = False
    argument_aliases: Mapping[str, str] = {}
    ignored_arguments: frozenset[str] = frozenset()
    adapt: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None
    needs_confirmation: bool = False
    confirmation_reason: str = ""
    forward: Callable[[dict[str, Any]], tuple[str, dict[str, Any]]] | None = None
    make_reminder: Callable[[Any], str | None] | None = None
    category: ToolCategory | None = None
    path_argument: str = ""
    is_search: bool = False
    rule_argument: str = ""
    is_stateful: bool = False
    title_argument: str = ""
    view: ToolView = ""
    preview: Callable[[Mapping[str, Any], ToolResult], Iterable[PreviewLine]] | None = None
    preview_lines: int = 0
    propose: Callable[[Any, Mapping[str, Any]], Iterable[PreviewLine]] | None = None
    is_provider_tool: bool = False
    needs_children: bool = False
    offered_to: Literal["all", "root", "request"] = "all"
    keeps_results: bool = False
    uses_context: bool = True
    reference: str = ""

    @property
    def definition_bytes(self) -> int:
        """Size in bytes of the definition as sent to a model."""
        return len(self.name) + len(self.description) + len(msgspec.json.encode(self.parameters))

    def parse_arguments(self, arguments: Mapping[str, Any]) -> object:
        """Convert a call's arguments to the second argument of `run`. Raises ValueError."""
        return self.parse(self.read_arguments(arguments))

    def read_arguments(self, arguments: Mapping[str, Any], *, called: str = "") -> dict[str, Any]:
        """Translate a model's arguments into this tool's terms, with types as in the schema.

        Arguments:
            called: the name the model called the tool by; "" for its own.

        Raises ValueError if an argument is given twice with different values, or asks for something
        this tool cannot do.
        """
        if None in arguments.values():
            arguments = {
                key: value
                for key, value in arguments.items()
                if value is not None or key not in self.argument_aliases
            }
        renamed = self.rename_arguments(arguments)
        if len(renamed) < len(arguments):
            self._check_given_once(arguments)
        for name in self.ignored_arguments:
            renamed.pop(name, None)
        read = read_leniently(self.parameters, renamed)
        assert isinstance(read, dict)
        return self.adapt((called or self.name).lower(), read) if self.adapt else read

    def rename_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Rename aliased arguments to their names in `parameters`."""
        aliases = self.argument_aliases
        return {aliases.get(key, key): value for key, value in arguments.items()}

    def _check_given_once(self, arguments: Mapping[str, Any]) -> None:
        # Permission rules would judge one of the two values, and the tool might use the other.
        names: dict[str, str] = {}
        for given, value in arguments.items():
            name = self.argument_aliases.get(given, given)
            first = names.setdefault(name, given)
            if value != arguments[first]:
                raise ValueError(f"{first}, {given}: both mean {name}; give one of them")

    def list_proposed(
        self, workspace: object, arguments: Mapping[str, Any]
    ) -> tuple[PreviewLine, ...]:
        """List the lines of the change a call would make; empty if the tool cannot tell."""
        try:
            return tuple(self.propose(workspace, arguments)) if self.propose else ()
        except (MudroomError, ValueError, OSError):
            return ()

    def has_category(self, category: ToolCategory) -> bool:
        """Return whether the tool acts on this. A pure tool without a category reads."""
        if self.category is None:
            return category is ToolCategory.READ and self.effect is Effect.PURE
        return self.category is category
