"""Configuration and result of a SubAgentScope; import them from `mudroom.scope`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from .._core.budgets import check_limits
from .._core.messages import Message
from .._core.runs import Reason, Report
from .._core.tools import Tool
from .._core.type_checks import NamedFields, check_type
from .._platform.patterns import compile_later
from ..errors import UsageError, quote_value

SubagentTerminateMode = Reason
"""Why a scope ended: ERROR, TIMEOUT, GOAL, MAX_TURNS, CANCELLED, BUDGET or LOOP.

Example:
    SubagentTerminateMode.GOAL is Reason.GOAL
"""

_PLACEHOLDER = compile_later(r"\$\{([^{}]*)(\}?)")


class ContextState:
    """Values for the placeholders `${key}` in a system prompt.

    A key is any text without braces or surrounding blanks.

    Arguments:
        mapping: values by key, including keys that are not Python names.
        values: further values, which replace those in the mapping.

    Example:
        ContextState({"doc-path": "paper.md"}, pages=3).get("doc-path")
    """

    def __init__(self, mapping: Mapping[str, Any] = {}, /, **values: Any) -> None:
        check_type("values", mapping, Mapping, "ContextState")
        self._values: dict[str, object] = {}
        for key, value in {**mapping, **values}.items():
            self.set(key, value)

    def get(self, key: str) -> object:
        """Return a value, None if not set."""
        return self._values.get(key)

    def set(self, key: str, value: object) -> None:
        """Set a value. Raises UsageError for a key no placeholder can name."""
        if not _is_key(key):
            raise UsageError(
                f"{quote_value(key)} cannot be a key of a ContextState",
                remedy="Use a text without braces and without blanks at its ends.",
            )
        self._values[key] = value

    def get_keys(self) -> list[str]:
        """List the keys in the order they were first set."""
        return list(self._values)


class PromptConfig(Struct, metaclass=NamedFields, frozen=True, kw_only=True):
    """What a scope must do. Set exactly one field, or the run raises UsageError.

    Arguments:
        system_prompt: text with placeholders `${key}`, filled from the ContextState.
        initial_messages: messages, or dicts with "role" ("user", "assistant") and "content".

    Example:
        PromptConfig(system_prompt="Extract the title from ${doc_path}.")
    """

    system_prompt: str | None = None
    initial_messages: Sequence[Message | Mapping[str, str]] | None = None


class ModelConfig(Struct, metaclass=NamedFields, frozen=True, kw_only=True):
    """Model, sampling and output limit of a scope.

    Arguments:
        model: a model string, or "inherit" for the session's model.
        temp: temperature, 0 to 2; None is the provider's default.
        top_p: 0 to 1; None is the provider's default.
        max_output_tokens: the most tokens in a single answer; None is the session's limit.

    Example:
        ModelConfig(model="anthropic:haiku", temp=0.2, top_p=0.9)
    """

    model: str = "inherit"
    temp: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None


class RunConfig(Struct, metaclass=NamedFields, frozen=True, kw_only=True):
    """Limits of a scope; None means no limit.

    Arguments:
        max_time_minutes: wall-clock time; ends with TIMEOUT.
        max_turns: model calls; ends with MAX_TURNS.
        max_input_tokens, max_output_tokens, max_total_tokens: sums over all its model calls; end
            with BUDGET.
        max_budget_usd: US dollars; ends with BUDGET. Needs a model with a known price.

    Raises UsageError for an amount that is negative, infinite or not a number.

    Example:
        RunConfig(max_time_minutes=2, max_turns=8, max_budget_usd=0.5)
    """

    max_time_minutes: float | None = None
    max_turns: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_total_tokens: int | None = None
    max_budget_usd: float | None = None

    def __post_init__(self) -> None:
        check_limits(self, fractional=("max_time_minutes", "max_budget_usd"))


class ToolConfig(Struct, metaclass=NamedFields, frozen=True, kw_only=True):
    """A scope's tools. It has no others, not even the session's.

    Arguments:
        tools: names of the session's tools (names from other programs work too), Tool objects,
            functions as `mudroom.tool` takes them, or declarations: dicts with "name",
            "description", "parameters" (a JSON Schema of an object; without it the tool takes no
            arguments) and optionally "handler", a function called with the arguments. Without a
            handler, calls return an error result for the model to read. Gemini's declarations also
            work, with "parametersJsonSchema" or types in upper case.

    Example:
        schema = {"type": "object"}
        clock = {"name": "now", "parameters": schema, "handler": lambda arguments: "noon"}
        ToolConfig(tools=["read", clock])
    """

    tools: Sequence[str | Tool | Mapping[str, Any] | Callable[..., Any]] = ()


class OutputConfig(Struct, metaclass=NamedFields, frozen=True, kw_only=True):
    """The values a scope must emit. If empty, it may emit any values.

    Arguments:
        outputs: name -> description, schema or type, or anything else that `Session.task` accepts
            as `outputs`. Values with a schema or type are checked.

    Example:
        OutputConfig(outputs={"title": "the document's title", "pages": {"type": "integer"}})
    """

    outputs: type[Any] | Mapping[str, Any] = {}


class OutputObject(Struct, metaclass=NamedFields, kw_only=True):
    """The result of a scope.

    Arguments:
        emitted_vars: name -> value, even if a limit ended the run after they were emitted. The
            schema of a single value, such as `{"type": "array"}`, has the name "result". If the
            reason is GOAL, a value requested with a type has that type.
        terminate_reason: why the run ended; ERROR until then.
        report: the run's complete report; None until it has ended. Its `outputs` have the requested
            type.

    Example:
        wanted = OutputConfig(outputs={"title": "the document's title"})
        prompt = PromptConfig(system_prompt="Find the title.")
        out: OutputObject = await session.scope("reader", prompt, output_config=wanted)
        print(out.terminate_reason, out.emitted_vars["title"])
    """

    emitted_vars: dict[str, Any] = {}
    terminate_reason: Reason = Reason.ERROR
    report: Report[Any] | None = None


def fill_template(text: str, context: ContextState) -> str:
    """Replace each `${key}` with its value.

    Raises UsageError naming every key without a value, and for a `${` that begins no
    placeholder.
    """
    keys: dict[str, None] = {}
    for match in _PLACEHOLDER.finditer(text):
        key = match[1].strip()
        if not match[2] or not _is_key(key):
            raise UsageError(
                f"The system prompt has a placeholder without a key: {match[0][:80]!r}",
                remedy="Write ${key}. To keep ${ in the prompt, put it into a value: values are "
                "not expanded.",
            )
        keys[key] = None
    known = set(context.get_keys())
    missing = [key for key in keys if key not in known]
    if missing:
        raise UsageError(f"Missing context values for the following keys: {', '.join(missing)}")
    # In one pass, so that `${...}` inside a value stays as it is.
    return _PLACEHOLDER.sub(lambda match: _to_text(match[1].strip(), context), text)


def _to_text(key: str, context: ContextState) -> str:
    try:
        return str(context.get(key))
    # A value can be any object, and its `__str__` may raise anything.
    except Exception as error:
        raise UsageError(
            f"the value of {quote_value(key)} cannot be written as text: {error}",
            where="ContextState",
            remedy="Set a text.",
        ) from error


def _is_key(key: object) -> bool:
    return isinstance(key, str) and key != "" and key == key.strip() and not {"{", "}"} & set(key)
