"""Removes parts of a conversation that a provider refuses.

Such a part would be in every later request, so the session could never continue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ...._platform.patterns import compile_later
from ..model_facts import NO_SIGNATURE

# Reasoning is sealed for an account and a model, and a provider refuses it elsewhere.
_SEALED = compile_later(
    r"(?i)(invalid|missing|without) .{0,10}signature.{0,10} in .{0,10}thinking"
    r"|thinking\.signature: field required|thought.?signature.{0,20}(not valid|invalid|corrupt)"
    r"|encrypted[ _]content.{0,400}(could not be|cannot be|not) (decrypted|verified|parsed)"
    r"|redacted_thinking.{0,80}cannot be modified"
    r"|of type 'reasoning' was provided without its required"
)
_NO_IMAGES = compile_later(
    r"(?i)(not|n't) (support|accept|take) (image|vision|multimodal)"
    r"|image_url.{0,40}(only supported by|expected `?text)|endpoints found that support image"
    r"|images? (inputs? )?(is|are) not (supported|enabled)"
)
_BAD_IMAGE = compile_later(
    r"(?i)\bimage\b.{0,80}(exceed|too (large|big|many|small)|maximum|limit)"
    r"|(could not|cannot|unable to|failed to) (process|decode|download|read|load) .{0,20}image"
    r"|(invalid|unsupported|not a valid|not represent a valid) .{0,10}image"
    r"|provided image is not valid|too many images|at most \d+ image"
)
_PLACEHOLDER = "(an image that the provider refused)"
_IMAGE_TYPES = {"image": "text", "image_url": "text", "input_image": "input_text"}
_THINKING = frozenset({"thinking", "redacted_thinking"})
# Fields where a message holds its blocks. Call arguments are not blocks, whatever they look like.
_BLOCKS = frozenset({"content", "parts", "output"})

Entry = dict[str, Any]


def find_removal(refusal: str) -> tuple[Callable[[Entry], Entry | None], str] | None:
    """Find the part to remove from messages after a refusal; None if it concerns none.

    Returns a function that makes a message without the part, or None for a message that held
    nothing else; and the change in words.
    """
    if _SEALED.search(refusal):
        return remove_reasoning, "earlier reasoning is left out"
    if takes_no_images(refusal) or _BAD_IMAGE.search(refusal):
        return remove_images, "earlier images are left out"
    return None


def takes_no_images(refusal: str) -> bool:
    return bool(_NO_IMAGES.search(refusal))


def remove_reasoning(entry: Entry) -> Entry | None:
    """Remove sealed reasoning from a message of any wire; None if nothing remains."""
    if entry.get("type") == "reasoning":
        return None
    entry = {name: value for name, value in entry.items() if name != "reasoning_details"}
    for name in _BLOCKS & entry.keys():
        if isinstance(entry[name], list):
            blocks = cast("list[Entry]", entry[name])
            entry[name] = [_remove_signature(each) for each in blocks if not _is_thought(each)]
            if not entry[name]:
                return None
    return entry


def _is_thought(block: Entry) -> bool:
    return block.get("type") in _THINKING or bool(block.get("thought"))


def _remove_signature(block: Entry) -> Entry:
    if "thoughtSignature" not in block:
        return block
    if "functionCall" in block:
        return block | {"thoughtSignature": NO_SIGNATURE}
    return {name: value for name, value in block.items() if name != "thoughtSignature"}


def remove_images(entry: Entry) -> Entry:
    """Replace each image in a message or block of any wire with a text."""
    if kind := _IMAGE_TYPES.get(entry.get("type", "")):
        return {"type": kind, "text": _PLACEHOLDER}
    if "inlineData" in entry:
        return {"text": _PLACEHOLDER}
    kept = {name: value for name, value in entry.items() if name != "images"}
    if "images" in entry:
        kept["content"] = f"{entry.get('content') or ''}\n\n{_PLACEHOLDER}".strip()
    for name in _BLOCKS & kept.keys():
        if isinstance(kept[name], list):
            kept[name] = [remove_images(each) for each in cast("list[Entry]", kept[name])]
    return kept
