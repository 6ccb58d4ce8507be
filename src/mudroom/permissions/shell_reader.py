"""Reads bash syntax trees: words, expansions, and checks that nothing was overlooked.

The grammar is tolerant and sometimes reads a command differently from bash. So every node, word or
gap between words that is not on a list of known ones becomes a problem, and no rule allows a
command with a problem.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .shell_words import SimpleCommand, Word, has_expansion, parse_word, split_word_set

if TYPE_CHECKING:
    from tree_sitter import Node

# Levels of nested nodes that are followed; anything deeper is a problem.
MAX_NESTING = 60

_GAP = re.compile(rb"(?:[ \t\n]|\\\n)*")
# Nodes inside which gaps are part of the text.
_UNDIVIDED = {"string", "raw_string", "ansi_c_string", "heredoc_body", "comment"}
# Nodes of which only the children matter.
_FRAMES = split_word_set(
    "program list pipeline subshell compound_statement do_group if_statement elif_clause "
    "else_clause while_statement negated_command case_statement case_item function_definition "
    "command_substitution process_substitution"
)
_SIGNS = split_word_set(
    "; && || | |& & ( ) { } do done if then elif else fi while until for in case esac ;; ;& ;;& ! "
    "function ` $( <( >("
) | {"\n"}
_SEPARATORS = split_word_set("; && || | |& & (") | {"\n"}
WORD_NODES = split_word_set(
    "word string raw_string ansi_c_string concatenation number simple_expansion expansion "
    "command_substitution process_substitution arithmetic_expansion"
)
_SUBSTITUTIONS = {"command_substitution", "process_substitution"}
_EXPANSIONS = {"simple_expansion", "expansion", "arithmetic_expansion"} | _SUBSTITUTIONS
# Expansions that cannot run or set anything: `$x`, `${x}`, `${#x}`, `${x:-text}`, cutting a plain
# pattern from either end, and arithmetic with numbers.
_HARMLESS_EXPANSION = re.compile(
    r"\$(?:\w+|[@*#?$!-])"
    r"|\$\{#?\w+\}"
    r"|\$\{\w+(?:%%?|##?)[\w./*?-]+\}"
    r"|\$\{\w+:?-[\w./-]*\}"
    r"|\$\(\(\s*\d+(?:\s*[-+*/%]\s*\d+)*\s*\)\)"
)


class NodeReader:
    """Visits the nodes of a syntax tree. Subclasses add `visit_<node type>` methods."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.commands: list[SimpleCommand] = []
        self.problems: list[str] = []
        self._depth = 0

    def add_problem(self, why: str) -> None:
        """Record why the tree may not show every command."""
        self.problems.append(why)

    def text(self, node: Node) -> str:
        """Return the source text of a node."""
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")

    def read_tree(self, root: Node) -> None:
        """Read the whole tree into `commands` and `problems`."""
        if root.has_error:
            self.add_problem("it is not valid bash")
        self._check_gaps(root)
        self.visit(root)

    def _check_gaps(self, root: Node) -> None:
        """Report text between leaves that is not blank, and line breaks that join words."""
        inside: list[Node] = []
        at = self._check_gaps_between(root, 0, inside)
        if not _GAP.fullmatch(self.source, at):
            self.add_problem("its end was not understood")
        while inside:
            node = inside.pop()
            if node.type in _SUBSTITUTIONS:
                self._check_gaps_between(node, node.start_byte, inside)
            else:
                inside.extend(node.children)

    def _check_gaps_between(self, root: Node, at: int, inside: list[Node]) -> int:
        """Check the gaps between a node's leaves; return the end of the last leaf.

        Arguments:
            inside: receives the nodes whose own gaps remain unchecked.
        """
        before: Node | None = None
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if node.child_count and node.type not in _UNDIVIDED:
                waiting.extend(reversed(node.children))
                continue
            inside.extend(node.children)
            gap = self.source[at : node.start_byte]
            rest = gap.replace(b"\\\n", b"")
            if not _GAP.fullmatch(gap) or not self._is_read_as_written(node):
                self.add_problem("a part of it was not understood")
            elif before is not None and gap != rest:
                self._check_line_break(before, node, rest)
            at = max(at, node.end_byte)
            before = node
        return at

    def _is_read_as_written(self, node: Node) -> bool:
        """Return whether a sign's text is the sign the grammar reports; false for ``."""
        sign = self.text(node).strip()
        return node.is_named or (sign == node.type.strip() and sign != "``")

    def _check_line_break(self, before: Node, after: Node, rest: bytes) -> None:
        """Report an escaped line break that may join two words, or that is next to a line break.

        Bash removes the backslash and the line break. Without a blank next to them it joins both
        sides, unless one of them separates commands.

        Arguments:
            rest: the gap between the leaves without these two characters.
        """
        ends = before.type in _SEPARATORS and after.is_named
        starts = after.type in _SEPARATORS - {"("} and before.is_named
        if b"\n" in rest:
            self.add_problem("a line break inside a command")
        elif not rest and not ends and not starts:
            self.add_problem("a line break inside a word")

    def visit(self, node: Node) -> None:
        """Read one node and everything below it."""
        self._depth += 1
        visit_special = getattr(self, f"visit_{node.type}", None)
        if self._depth > MAX_NESTING:
            self.add_problem("nested too deeply")
        elif visit_special and node.is_named:
            visit_special(node)
        elif node.type in _FRAMES:
            self._visit_frame(node)
        elif node.type in WORD_NODES:
            self.read_word(node)
        elif node.is_named or node.type not in _SIGNS:
            self.add_problem(f"{node.type.replace('_', ' ')} is not judged")
            self.visit_children(node)
        self._depth -= 1

    def visit_children(self, node: Node) -> None:
        """Read the children of a node."""
        for child in node.children:
            self.visit(child)

    def _visit_frame(self, node: Node) -> None:
        if node.type in _SUBSTITUTIONS:
            text = self.text(node)
            if text.startswith("`") and "\\" in text:
                self.add_problem("backslashes inside backquotes are not judged")
        self.visit_children(node)

    def visit_comment(self, node: Node) -> None:
        """Report a comment that starts where bash would not start one."""
        before = self.source[node.start_byte - 1 : node.start_byte]
        if before and before not in b" \t\n;&|()":
            self.add_problem("a # inside a word was read as a comment")

    def visit_extglob_pattern(self, node: Node) -> None:
        """Report a pattern that contains an expansion."""
        if has_expansion(self.text(node)):
            self.add_problem("a pattern holds an expansion")
        self.visit_children(node)

    visit_regex = visit_extglob_pattern

    def read_word(self, node: Node) -> Word:
        """Read a word and the commands substituted in it."""
        word = parse_word(self.text(node), node.type)
        if word.problem:
            self.add_problem(word.problem)
        if node.type in _EXPANSIONS:
            self._visit_word_part(node)
            return word
        for child in node.children:
            if child.type in WORD_NODES and child.type not in ("word", "number"):
                self._visit_word_part(child)
            elif child.is_named and child.type not in ("word", "number", "string_content"):
                self.visit(child)
        return word

    def _visit_word_part(self, node: Node) -> None:
        if node.type in _SUBSTITUTIONS:
            self._visit_frame(node)
        elif node.type in _EXPANSIONS:
            self._visit_expansion(node)
        else:
            self.read_word(node)

    def _visit_expansion(self, node: Node) -> None:
        if _HARMLESS_EXPANSION.fullmatch(self.text(node)):
            return
        self.add_problem(f"the expansion {self.text(node)[:40]} is not judged")
        for child in node.children:
            if child.is_named and child.type not in ("variable_name", "special_variable_name"):
                self.visit(child)
