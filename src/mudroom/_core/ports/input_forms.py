"""Forms: values that an MCP server asks the user for, and the check of typed answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from msgspec import Struct

FieldKind = Literal["text", "number", "integer", "boolean", "choice", "choices"]
_KINDS: dict[str, FieldKind] = {"number": "number", "integer": "integer", "boolean": "boolean"}
_LIMIT_TYPES: dict[str, tuple[type, ...]] = {
    "minimum": (int, float),
    "maximum": (int, float),
    "minLength": (int,),
    "maxLength": (int,),
    "format": (str,),
    "pattern": (str,),
}
"""Types of the limits in a schema. Limits of another type are not used."""
_LIMIT_WORDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "format": "format {}",
    "pattern": "pattern {}",
}


class FormField(Struct, frozen=True):
    """One value of a form.

    Arguments:
        choices: pairs of value and label, for the kinds "choice" and "choices".
        default: value if the user gives none; None for no default.
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
        """Return the words for each limit."""
        return [_LIMIT_WORDS[name].format(value) for name, value in self.limits.items()]

    @property
    def label(self) -> str:
        """Title, else the name."""
        return self.title or self.name


class InputForm(Struct, frozen=True):
    """Question of an MCP server to the user: a form, or an address to open.

    Arguments:
        server: name of the server.
        message: the question.
        schema: JSON Schema of an object with flat values, empty for an address.
        url: address that the user must open, "" for a form. mudroom never opens it.

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
    """Return the fields of a form in the order of its schema."""
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
    """Return the pairs of value and label of an enumeration, in its three forms."""
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
    """Return the value of a typed answer. Raises ValueError with what is expected."""
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
    """Raise ValueError if a value is beyond the limits of its field."""
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
    """Return the values, and the defaults of the fields that have none."""
    defaults = {
        field.name: field.default for field in list_fields(form) if field.default is not None
    }
    return defaults | dict(values)


def _as_table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
