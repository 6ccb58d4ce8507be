"""Reader of redirects, here-strings and here-documents in bash syntax trees."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .shell_reader import WORD_NODES, NodeReader
from .shell_words import Redirect, Word, has_expansion, split_word_set

if TYPE_CHECKING:
    from tree_sitter import Node

_CLOSING = split_word_set("<&- >&-")
"""Redirects that close a descriptor: they have no target, so the next word is an argument."""
_COPYING = split_word_set("<& >&")
_OPERATORS = split_word_set("< > >> &> &>> >|") | _COPYING | _CLOSING
_DESCRIPTOR = re.compile(r"(?:^|[\s;&|()<>])(?:\d+|\{[^\s{}]*\})$")
"""Descriptor of a redirect at the end of a text."""
_HERE_DOCUMENT_NODES = split_word_set(
    "<< <<- heredoc_start heredoc_body heredoc_end file_descriptor"
)
_DELIMITER = re.compile(
    r"([A-Za-z_][A-Za-z0-9_]*)|'([A-Za-z_][A-Za-z0-9_]*)'|\"([A-Za-z_][A-Za-z0-9_]*)\""
)
"""Delimiter of a here-document: bare, which expands the text, or quoted, which does not."""


class RedirectReader(NodeReader):
    """Node reader that knows redirects."""

    def read_redirect(self, node: Node, arguments: list[Word]) -> Redirect:
        """Return the redirect of a node.

        The grammar reads the words after the target as further targets; for bash they are
        arguments of the command, so they are added to `arguments`.
        """
        targets: list[Word] = []
        operator = ""
        self._check_descriptor(node)
        for child in node.children:
            if child.type == "file_descriptor":
                continue
            if child.type in WORD_NODES:
                if targets and _find_adjacent(child):
                    self.add_problem("two words without a blank between them")
                targets.append(self.read_word(child))
            elif child.is_named:
                self.add_problem(f"{child.type} as a target is not judged")
            else:
                operator += child.type
        if operator not in _OPERATORS:
            self.add_problem(f"the redirect {operator} is not judged")
        if not targets or operator in _CLOSING:
            arguments.extend(targets)
            return Redirect(operator, None)
        if operator in _COPYING and re.match("-.", targets[0].raw):  # bash reads `>&-` and a word
            self.add_problem("a descriptor of a redirect was not understood")
        arguments.extend(targets[1:])
        return Redirect(operator, targets[0])

    def _check_descriptor(self, node: Node) -> None:
        """Report a word before a redirect, without a blank, that bash reads as its descriptor."""
        before = _find_adjacent(node)
        if before is not None and _DESCRIPTOR.search(self.text(before)):
            self.add_problem("a descriptor of a redirect was not understood")

    def read_here_string(self, node: Node) -> Redirect:
        """Return the redirect of a `<<<` node, and read the words in it."""
        self._check_descriptor(node)
        for child in node.children:
            if child.type in WORD_NODES:
                self.read_word(child)
            elif child.type not in ("<<<", "file_descriptor"):
                self.add_problem("a here-string was not understood")
                self.visit(child)
        return Redirect("<<<", None)

    def read_here_document(self, node: Node, arguments: list[Word]) -> list[Redirect]:
        """Return the redirects of a here-document's first line.

        Words after the delimiter are arguments of the command; they are added to `arguments`.
        """
        redirects = [Redirect("<<", None)]
        self._check_descriptor(node)
        self._check_here_document(node)
        for child in node.children:
            if child.type in _HERE_DOCUMENT_NODES:
                continue
            if child.type == "file_redirect":
                redirects.append(self.read_redirect(child, arguments))
            elif child.type in WORD_NODES:
                arguments.append(self.read_word(child))
            else:
                self.visit(child)
        return redirects

    def _check_here_document(self, node: Node) -> None:
        """Report a here-document that may end elsewhere in bash, or that holds an expansion.

        With a line too many or too few, a command could be read as text.
        """
        start = next((child for child in node.children if child.type == "heredoc_start"), None)
        delimiter = _DELIMITER.fullmatch(self.text(start)) if start is not None else None
        if start is None or delimiter is None or node.children[-1].type != "heredoc_end":
            self.add_problem("a here-document was not understood")
            return
        end = self._find_delimiter_line(
            delimiter[delimiter.lastindex or 1],
            first=start.end_point.row + 1,
            skip_tabs=node.children[0].type == "<<-",
        )
        if end != node.children[-1].start_point.row:
            self.add_problem("a here-document ends elsewhere in bash")
        if b"<<" in self.source[start.end_byte :].split(b"\n", 1)[0]:
            self.add_problem("two here-documents on one line")
        if delimiter[1]:
            self._check_here_document_body(node)

    def _find_delimiter_line(self, delimiter: str, *, first: int, skip_tabs: bool) -> int:
        """Return the index of the line on which bash ends the here-document, -1 for none."""
        lines = self.source.decode("utf-8", "surrogateescape").split("\n")
        for number in range(first, len(lines)):
            line = lines[number].lstrip("\t") if skip_tabs else lines[number]
            if line == delimiter:
                return number
        return -1

    def _check_here_document_body(self, node: Node) -> None:
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        if body is None or not has_expansion(self.text(body)):
            return
        self.add_problem("a here-document holds an expansion")
        for child in body.children:
            if child.type != "heredoc_content":
                self.visit(child)


def _find_adjacent(node: Node) -> Node | None:
    """Return the node before this one if no text lies between them."""
    before = node.prev_sibling
    return before if before is not None and before.end_byte == node.start_byte else None
