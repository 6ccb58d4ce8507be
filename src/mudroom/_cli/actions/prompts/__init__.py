"""The user's prompts: mentions, attached files and images."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...._core.messages import ImageBlock, TextBlock
from ...._core.runs import Report
from ...._session.config import Settings
from ....errors import UsageError
from .mentions import describe_unknown_mentions, expand_mentions, load_attachments
from .server_prompts import fetch_resources

if TYPE_CHECKING:
    from ...._session.session import Session


class PreparedPrompt(Struct):
    """A prompt as the model gets it.

    Arguments:
        text: with instructions for mentioned agents, without the contents of files.
        files: contents of the mentioned files, "" for none.
        notes: one line for each attached file and each mention that means nothing.
    """

    text: str
    files: str
    images: list[ImageBlock]
    notes: list[str]


async def prepare_prompt(
    session: Session,
    settings: Settings,
    line: str,
    *,
    teammates: Collection[str],
    typed: str | None = None,
) -> PreparedPrompt:
    """Expand a prompt's mentions and read its files.

    Arguments:
        teammates: names of the named children that can work.
        typed: see `load_attachments`.
    """
    agents = [agent.name for agent in session.agents]
    attachments = await asyncio.to_thread(
        load_attachments, session, settings, line, without=teammates, typed=typed
    )
    resources, mentioned = await fetch_resources(session, line, attachments.notes)
    text = expand_mentions(
        line,
        folder=session.cwd,
        agents=agents,
        teammates=teammates,
        attached=[*attachments.words, *mentioned],
    )
    hints = describe_unknown_mentions(line, folder=session.cwd, agents=agents, teammates=teammates)
    files = attachments.text + resources
    return PreparedPrompt(text, files, attachments.images, [*attachments.notes, *hints])


async def run_prepared(
    session: Session,
    prompt: PreparedPrompt,
    data: str,
    warn: Callable[[str], None],
    **options: Any,
) -> Report:
    """Run a prompt. If the model takes no images, only their paths are sent.

    Arguments:
        data: follows the text. warn: takes each note, a line for the user.
        options: further arguments of `Session.run`.
    """
    for note in prompt.notes:
        warn(note)
    text = prompt.text + data + prompt.files
    if prompt.images:
        try:
            return await session.run([TextBlock(text), *prompt.images], **options)
        # Raised before anything is sent; the paths are in the text anyway.
        except UsageError as error:
            warn(f"The images are not sent, only their paths: {error}")
    return await session.run(text, **options)
