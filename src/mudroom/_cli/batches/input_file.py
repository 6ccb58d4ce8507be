"""A batch's input: lines in three formats, all checked before the first run."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..._core.budgets import Budget
from ..._engine.structured_output import parse_output_type
from ..._session.prompts import parse_prompt
from ...errors import UsageError, quote_value

_NATIVE_KEYS = ("custom_id", "prompt", "agent", "model", "budget", "outputs")
# Earlier name of the key custom_id in native lines, still accepted.
_OLD_ID = "id"
_OPENAI_KEYS = ("custom_id", "method", "url", "body")
_OPENAI_URLS = ("/v1/chat/completions", "/v1/responses")
_USED_BODY_KEYS = {"model", "messages", "input", "response_format", "text"}
# In a task's key.
_DIGEST_BYTES = 8


class LineError(Exception):
    pass


class BatchLine(Struct, frozen=True, gc=False):
    """One task of a batch.

    Line numbers start at 1. "" as agent or model means the batch's. `outputs` are names or a JSON
    Schema; `ignored` are unused keys in the body of an OpenAI line.
    """

    number: int
    id: str
    prompt: str
    agent: str = ""
    model: str = ""
    budget: dict[str, Any] | None = None
    outputs: dict[str, Any] | None = None
    ignored: tuple[str, ...] = ()

    def compute_key(self) -> int:
        """Compute a 64-bit digest of text, agent, model, budget and outputs."""
        values = (self.id, self.prompt, self.agent, self.model, self.budget, self.outputs)
        encoded = msgspec.json.encode(values)
        return int.from_bytes(blake2b(encoded, digest_size=_DIGEST_BYTES).digest(), "big")

    def make_budget(self) -> Budget | None:
        return Budget(**self.budget) if self.budget else None


class _NativeLine(Struct, forbid_unknown_fields=True, gc=False):
    """A native line in its most common form."""

    prompt: str
    custom_id: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    agent: str = ""
    model: str = ""


# Decoding into a struct is fast; all other lines are parsed step by step.
_native_decoder = msgspec.json.Decoder(_NativeLine)


def parse_line(number: int, text: bytes) -> BatchLine:
    try:
        native = _native_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _parse_other(number, text)
    line_id = _choose_id(number, native.custom_id, native.id)
    if not native.prompt or native.prompt.isspace():
        raise LineError("the prompt is empty")
    return BatchLine(number, line_id, native.prompt, native.agent, native.model)


def _parse_other(number: int, text: bytes) -> BatchLine:
    try:
        value: Any = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        if text.startswith(BOM_UTF8):  # as spreadsheet programs write it
            return parse_line(number, text.removeprefix(BOM_UTF8))
        raise LineError(f"no JSON: {error}") from error
    except UnicodeDecodeError as error:
        raise LineError("no UTF-8 text; save the file as UTF-8") from error
    except RecursionError as error:
        raise LineError("its lists and objects are nested too deeply") from error
    if isinstance(value, str):
        return BatchLine(number, f"line-{number}", _check_prompt(value))
    if not isinstance(value, dict):
        raise LineError("neither an object nor a text")
    fields = cast("dict[str, Any]", value)
    if "body" in fields or ("custom_id" in fields and "prompt" not in fields):
        return _parse_openai(number, fields)
    return _parse_native(number, fields)


def _parse_native(number: int, fields: dict[str, Any]) -> BatchLine:
    _check_keys({name: value for name, value in fields.items() if name != _OLD_ID}, _NATIVE_KEYS)
    if "prompt" not in fields:
        raise LineError("it has no prompt")
    return BatchLine(
        number=number,
        id=_choose_id(number, fields.get("custom_id", UNSET), fields.get(_OLD_ID, UNSET)),
        prompt=_check_prompt(fields["prompt"]),
        agent=_get_text(fields, "agent"),
        model=_get_text(fields, "model"),
        budget=_check_budget(_get_object(fields, "budget")),
        outputs=_check_outputs(_get_object(fields, "outputs")),
    )


def _parse_openai(number: int, fields: dict[str, Any]) -> BatchLine:
    _check_keys(fields, _OPENAI_KEYS)
    body = fields.get("body")
    if not isinstance(body, dict):
        raise LineError("body is no object")
    if "custom_id" not in fields:
        raise LineError("it has no custom_id")
    url = fields.get("url", _OPENAI_URLS[0])
    if url not in _OPENAI_URLS:
        raise LineError(f"url is {quote_value(url)}, not {' or '.join(_OPENAI_URLS)}")
    if fields.get("method", "POST") != "POST":
        raise LineError(f"method is {quote_value(fields['method'])}, not POST")
    body = cast("dict[str, Any]", body)
    return BatchLine(
        number=number,
        id=check_line_id(fields["custom_id"]),
        prompt=_check_prompt(_join_messages(body)),
        model=_get_text(body, "model"),
        outputs=_check_outputs(_get_object({"outputs": _get_schema(body)}, "outputs")),
        ignored=tuple(sorted(set(body) - _USED_BODY_KEYS)),
    )


def _join_messages(body: dict[str, Any]) -> str:
    messages = body.get("messages", body.get("input"))
    if isinstance(messages, str):
        return messages
    if not isinstance(messages, list) or not messages:
        raise LineError("body has no messages")
    texts: list[str] = []
    for message in cast("list[Any]", messages):
        fields = _get_fields(message)
        role = fields.get("role")
        if role not in ("system", "developer", "user"):
            raise LineError(f"a message has the role {quote_value(role)}; a line is one task")
        texts.append(_join_parts(fields.get("content")))
    return "\n\n".join(texts)


def _join_parts(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise LineError("a message has no content")
    texts = [_get_fields(part).get("text") for part in cast("list[Any]", content)]
    if not all(isinstance(text, str) for text in texts):
        raise LineError("a message has a part that is no text")
    return "\n\n".join(map(str, texts))


def _get_fields(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _get_schema(body: dict[str, Any]) -> object:
    """Find the answer's JSON Schema, None for plain text."""
    wanted = body.get("response_format") or _get_fields(body.get("text")).get("format")
    if wanted is None:
        return None
    fields = _get_fields(wanted)
    kind = fields.get("type")
    if kind == "text":
        return None
    schema = _get_fields(fields.get("json_schema", wanted)).get("schema")
    if kind != "json_schema" or schema is None:
        raise LineError(
            f"the format of the answer is {quote_value(kind)}; use json_schema with a schema"
        )
    return schema


def _check_keys(fields: dict[str, Any], known: tuple[str, ...]) -> None:
    if unknown := sorted(set(fields) - set(known)):
        remedy = "a batch works in one folder, which -C names" if unknown == ["cwd"] else ""
        names = ", ".join(map(quote_value, unknown))
        raise LineError(f"unknown key {names}; {remedy or 'known are ' + ', '.join(known)}")


def _choose_id(number: int, custom_id: object, old: object) -> str:
    """Choose a native line's id, under the current key or the earlier one."""
    if custom_id is not UNSET and old is not UNSET:
        raise LineError("it has custom_id and id, which mean the same; use custom_id")
    given = old if custom_id is UNSET else custom_id
    return f"line-{number}" if given is UNSET else check_line_id(given)


def check_line_id(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise LineError(f"the id is {quote_value(value)}, not a text of one line")
    return value


def _check_prompt(value: object) -> str:
    try:
        return parse_prompt(value).text
    except UsageError as error:
        raise LineError(error.message) from error


def _get_text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise LineError(f"{name} is {quote_value(value)}, not a text")
    return value


def _get_object(fields: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, dict):
        raise LineError(f"{name} is {quote_value(value)}, not an object")
    return cast("dict[str, Any] | None", value)


def _check_budget(limits: dict[str, Any] | None) -> dict[str, Any] | None:
    if limits is None:
        return None
    if unknown := sorted(set(limits) - set(Budget.__struct_fields__)):
        known = ", ".join(Budget.__struct_fields__)
        raise LineError(f"the budget has an unknown limit {quote_value(unknown[0])}; use {known}")
    try:
        Budget(**limits)
    except UsageError as error:
        raise LineError(error.message) from error
    for name, limit in limits.items():
        if limit == 0 and name not in ("children", "depth"):
            raise LineError(f"the budget has {name} 0, with which no run can work")
    return limits


def _check_outputs(outputs: dict[str, Any] | None) -> dict[str, Any] | None:
    if outputs is None:
        return None
    try:
        parse_output_type(outputs)
    except UsageError as error:
        raise LineError(error.message) from error
    return outputs


# Wrong lines named in an error.
_MAX_ERRORS = 10


class InputFacts(Struct):
    """Facts about a checked input.

    `keys` is empty unless requested. Agents and models map to the number of their first line,
    ignored keys to the number of lines that have them.
    """

    total: int
    keys: set[int]
    agents: dict[str, int]
    models: dict[str, int]
    ignored: Counter[str]

    def add(self, line: BatchLine, *, with_key: bool) -> None:
        self.total += 1
        if with_key:
            self.keys.add(line.compute_key())
        if line.agent:
            self.agents.setdefault(line.agent, line.number)
        if line.model:
            self.models.setdefault(line.model, line.number)
        if line.ignored:
            self.ignored.update(line.ignored)


class WrongLines(UsageError):
    """Input lines that cannot be run. Of many errors, names the first."""

    def __init__(self, name: str, errors: Sequence[tuple[int, str]]) -> None:
        self.errors = tuple(errors[:_MAX_ERRORS])
        shown = [f"line {number}: {error}" for number, error in self.errors]
        if len(errors) > _MAX_ERRORS:
            shown.append("and more")
        super().__init__(
            f"{name} has wrong lines:\n  " + "\n  ".join(shown) + "\n",
            remedy="Correct them, then run the batch again.",
        )


class InputFile:
    """A batch's input, a file with one line of JSON per task."""

    def __init__(self, path: Path, *, name: str = "") -> None:
        self.path = path
        self.name = name or str(path)

    def read(self) -> Iterator[BatchLine]:
        """Yield the tasks in order. Raises UsageError if the file has changed meanwhile."""
        for number, text in self._read_texts():
            try:
                line = parse_line(number, text)
            except LineError as error:
                raise WrongLines(self.name, [(number, str(error))]) from error
            yield line

    def check(self, *, with_keys: bool) -> InputFacts:
        """Read the whole input. Raises UsageError naming the wrong lines."""
        facts = InputFacts(0, set(), {}, {}, Counter())
        ids: dict[str, int] = {}
        errors: list[tuple[int, str]] = []
        for number, text in self._read_texts():
            try:
                line = parse_line(number, text)
            except LineError as error:
                errors.append((number, str(error)))
            else:
                earlier = ids.setdefault(line.id, number)
                if earlier != number:
                    errors.append((number, f"line {earlier} has the id {line.id!r}"))
                facts.add(line, with_key=with_keys)
            # One more than is shown, to tell that there are more.
            if len(errors) > _MAX_ERRORS:
                break
        if errors:
            raise WrongLines(self.name, errors)
        if not facts.total:
            raise UsageError(
                "the batch is empty", where=self.name, remedy="Write one line per task."
            )
        return facts

    def _read_texts(self) -> Iterator[tuple[int, bytes]]:
        with self.path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if text and not text.isspace():
                    yield number, text
