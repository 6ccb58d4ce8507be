"""What needs a user: the policy that judges tool calls, the approver, and forms to fill in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, cast

from msgspec import Struct

from ..messages import ToolCallBlock
from ..runs import Brief
from ..tools import PreviewLine, Tool, ToolCategory
from ..type_checks import NamedFields
from .workspace import Workspace


class ApprovalRequest(Struct, frozen=True):
    """A tool call waiting for confirmation.

    Arguments:
        why: why it needs confirmation.
        command_part: the part of the command the request is about, or "".
        category: category of the tool, see Tool.category.
        change: lines of the file change the call would make, see PreviewLine; empty if the tool
            cannot tell.
        name: name of the child that asks, if it has one, else "".
        form: a question asked by an MCP server or tool during the call; the decision then carries
            the answer. None for a request about the call itself.

    Example:
        request = ApprovalRequest("1", "main", "bash", {"command": "make"}, why="no rule allows it")
    """

    run_id: str
    agent: str
    tool: str
    arguments: dict[str, Any]
    why: str
    call_id: str = ""
    command_part: str = ""
    category: ToolCategory | None = None
    change: tuple[PreviewLine, ...] = ()
    name: str = ""
    form: InputForm | None = None


class ApprovalDecision(Struct, metaclass=NamedFields, frozen=True):
    """The answer to an approval request.

    Arguments:
        allowed: true if the call may run.
        why: text for the model if the call is denied.
        arguments: arguments that replace the model's, judged by the policy again; None keeps
            them. For a request with a form, the values of its fields by name.

    Example:
        ApprovalDecision(False, "Use the tests instead.")
    """

    allowed: bool
    why: str = ""
    arguments: dict[str, Any] | None = None


class Approver(Protocol):
    """Decides about tool calls. An approver that cannot reach a user denies at once.

    Example:
        class Careful:
            async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
                return ApprovalDecision(request.tool != "bash", "No commands here.")

        approver: Approver = Careful()
        Session(approver=approver)
    """

    async def decide(self, request: ApprovalRequest, /) -> ApprovalDecision:
        """Decide about a request. May wait for a user."""
        ...


class PermissionVerdict(Struct, frozen=True):
    """The policy's judgement of a tool call.

    Arguments:
        verdict: "allow", "ask" or "deny".
        why: one sentence for the model, the user and the journal.
        rule: the rule that decided, with its origin, or "".
        command_part: the part of the command the verdict is about, or "".
    """

    verdict: str
    why: str = ""
    rule: str = ""
    command_part: str = ""


class Policy(Protocol):
    """Judges tool calls by rules and mode, without asking anyone and without side effects."""

    def judge(
        self, call: ToolCallBlock, tool: Tool, arguments: Mapping[str, Any], brief: Brief
    ) -> PermissionVerdict:
        """Judge a tool call.

        Arguments:
            arguments: validated, under the tool's own argument names.
        """
        ...

    def filter_workspace(self, workspace: Workspace, tool: str, brief: Brief) -> Workspace:
        """Wrap a workspace so that a tool cannot see the files it may not read."""
        ...


FieldKind = Literal["text", "number", "integer", "boolean", "choice", "choices"]
_KINDS: dict[str, FieldKind] = {"number": "number", "integer": "integer", "boolean": "boolean"}
# Types of the limits in a schema. A server may send anything: limits of another type are ignored.
_LIMIT_TYPES: dict[str, tuple[type, ...]] = {
    "minimum": (int, float),
    "maximum": (int, float),
    "minLength": (int,),
    "maxLength": (int,),
    "format": (str,),
    "pattern": (str,),
}
_LIMIT_WORDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "format": "format {}",
    "pattern": "pattern {}",
}


class FormField(Struct, frozen=True):
    """One value a form asks for.

    Arguments:
        choices: pairs of value and label.
        limits: values by name in JSON Schema, such as `minimum`.
    """

    name: str
    kind: FieldKind
    title: str = ""
    description: str = ""
    is_required: bool = False
    default: Any = None
    choices: tuple[tuple[str, str], ...] = ()
    limits: dict[str, Any] = {}

    def describe_limits(self) -> list[str]:
        """Describe each limit in words, such as "at least 3 characters"."""
        return [_LIMIT_WORDS[name].format(value) for name, value in self.limits.items()]

    @property
    def label(self) -> str:
        return self.title or self.name


class InputForm(Struct, frozen=True):
    """A question to the user: a form, or an address to open.

    Arguments:
        server: name of the server.
        message: the question.
        schema: JSON Schema of an object of flat values, empty for an address.
        url: address the user must open, "" for a form. mudroom never opens it itself.

    Example:
        class Colors:
            async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
                form: InputForm | None = request.form
                if form is None or form.url:
                    return ApprovalDecision(False, "Only forms.")
                return ApprovalDecision(True, arguments={"color": "blue"})
    """

    server: str
    message: str
    schema: dict[str, Any] = {}
    url: str = ""


def list_fields(form: InputForm) -> list[FormField]:
    properties = _as_table(form.schema.get("properties"))
    required = form.schema.get("required")
    names = cast("list[object]", required) if isinstance(required, list) else []
    return [
        _make_field(name, _as_table(schema), name in names) for name, schema in properties.items()
    ]


def _make_field(name: str, schema: dict[str, Any], is_required: bool) -> FormField:
    kind = _KINDS.get(str(schema.get("type")), "text")
    choices = _list_choices(schema)
    if schema.get("type") == "array":
        kind = "choices"
        choices = _list_choices(_as_table(schema.get("items")))
    elif choices:
        kind = "choice"
    return FormField(
        name,
        kind,
        str(schema.get("title") or ""),
        str(schema.get("description") or ""),
        is_required,
        schema.get("default"),
        choices,
        {
            key: value
            for key, value in schema.items()
            if type(value) in _LIMIT_TYPES.get(key, ())  # a bool is no number
        },
    )


def _list_choices(schema: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    # Servers write an enumeration in three forms: titled choices in `oneOf` or `anyOf`, `enum`
    # alone, and `enum` with parallel `enumNames`.
    titled = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(titled, list):
        options = [_as_table(option) for option in cast("list[object]", titled)]
        return tuple(
            (str(option.get("const")), str(option.get("title") or option.get("const")))
            for option in options
            if "const" in option
        )
    values = schema.get("enum")
    if not isinstance(values, list):
        return ()
    texts = [str(value) for value in cast("list[object]", values)]
    names = schema.get("enumNames")
    labels = [str(name) for name in cast("list[object]", names)] if isinstance(names, list) else []
    labels += texts[len(labels) :]
    return tuple(zip(texts, labels, strict=False))


def parse_value(field: FormField, text: str) -> str | float | bool | list[str]:
    """Convert a typed answer to its value. Raises ValueError with the expected form."""
    value = _convert(field, text.strip())
    _check_limits(field, value)
    return value


def _convert(field: FormField, text: str) -> str | float | bool | list[str]:
    if field.kind in ("number", "integer"):
        try:
            return float(text) if field.kind == "number" else int(text)
        except ValueError:
            article = "a number" if field.kind == "number" else "a whole number"
            raise ValueError(f"{text!r} is not {article}") from None
    if field.kind == "boolean":
        if text.lower() not in ("yes", "no", "y", "n", "true", "false"):
            raise ValueError(f"{text!r} is neither yes nor no")
        return text.lower() in ("yes", "y", "true")
    if field.kind == "choice":
        return _find_choice(field, text)
    if field.kind == "choices":
        return [_find_choice(field, part.strip()) for part in text.split(",") if part.strip()]
    return text


def _check_limits(field: FormField, value: object) -> None:
    limits = field.limits
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < limits.get("minimum", value):
            raise ValueError(f"{value} is less than {limits['minimum']}")
        if value > limits.get("maximum", value):
            raise ValueError(f"{value} is more than {limits['maximum']}")
    if isinstance(value, str) and field.kind == "text":
        if len(value) < limits.get("minLength", 0):
            raise ValueError(f"it has fewer than {limits['minLength']} characters")
        if len(value) > limits.get("maxLength", len(value)):
            raise ValueError(f"it has more than {limits['maxLength']} characters")


def _find_choice(field: FormField, text: str) -> str:
    for value, label in field.choices:
        if text.lower() in (value.lower(), label.lower()):
            return value
    labels = ", ".join(label for _, label in field.choices)
    raise ValueError(f"{text!r} is not one of: {labels}")


def add_defaults(form: InputForm, values: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {
        field.name: field.default for field in list_fields(form) if field.default is not None
    }
    return defaults | dict(values)


def _as_table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
