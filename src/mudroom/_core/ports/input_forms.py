"""Forms: values an MCP server asks the user for, and the check of typed answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from msgspec import Struct

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
        choices: pairs of value and label for the kinds "choice" and "choices".
        default: value used if the user gives none; None for no default.
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
        """The title, or the name if there is no title."""
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
    """List the fields of a form in the order of its schema."""
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
    """Convert a typed answer to its value. Raises ValueError that says what is expected."""
    value = _convert(field, text.strip())
    _check_limits(field, value)
    return value


def _convert(field: FormField, text: str) -> str | float | bool | list[str]:
    if field.kind in ("number", "integer"):
        try:
            number = float(text) if field.kind == "number" else int(text)
        except ValueError:
            article = "a number" if field.kind == "number" else "a whole number"
            raise ValueError(f"{text!r} is not {article}") from None
        return number
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
    """Fill in the defaults of fields without a value."""
    defaults = {
        field.name: field.default for field in list_fields(form) if field.default is not None
    }
    return defaults | dict(values)


def _as_table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
