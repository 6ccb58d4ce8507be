"""Parses bash commands into simple commands, and problems that make the list uncertain.

The grammar is tolerant and sometimes reads a command differently from bash. So every node, word or
gap between words that is not on a list of known ones becomes a problem, and no rule allows a
command with a problem.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

from .shell_words import (
    Redirect,
    Script,
    SimpleCommand,
    Word,
    has_expansion,
    parse_word,
    split_word_set,
)

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


# Levels of nested nodes to follow; anything deeper is a problem.
MAX_NESTING = 60

_GAP = re.compile(rb"(?:[ \t\n]|\\\n)*")
# Nodes inside which gaps are part of the text.
_UNDIVIDED = {"string", "raw_string", "ansi_c_string", "heredoc_body", "comment"}
# Nodes whose children alone matter.
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
        self.problems.append(why)

    def text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")

    def read_tree(self, root: Node) -> None:
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

        Adds to `inside` the nodes whose own gaps remain unchecked.
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
        sides, unless one of them separates commands. `rest` is the gap without these characters.
        """
        ends = before.type in _SEPARATORS and after.is_named
        starts = after.type in _SEPARATORS - {"("} and before.is_named
        if b"\n" in rest:
            self.add_problem("a line break inside a command")
        elif not rest and not ends and not starts:
            self.add_problem("a line break inside a word")

    def visit(self, node: Node) -> None:
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
        if has_expansion(self.text(node)):
            self.add_problem("a pattern holds an expansion")
        self.visit_children(node)

    visit_regex = visit_extglob_pattern

    def read_word(self, node: Node) -> Word:
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


# These close a descriptor and have no target, so the next word is an argument.
_CLOSING = split_word_set("<&- >&-")
_COPYING = split_word_set("<& >&")
_OPERATORS = split_word_set("< > >> &> &>> >|") | _COPYING | _CLOSING
# A redirect's descriptor at the end of a text.
_DESCRIPTOR = re.compile(r"(?:^|[\s;&|()<>])(?:\d+|\{[^\s{}]*\})$")
_HERE_DOCUMENT_NODES = split_word_set(
    "<< <<- heredoc_start heredoc_body heredoc_end file_descriptor"
)
# A here-document's delimiter: bare, so the text is expanded, or quoted, so it is not.
_DELIMITER = re.compile(
    r"([A-Za-z_][A-Za-z0-9_]*)|'([A-Za-z_][A-Za-z0-9_]*)'|\"([A-Za-z_][A-Za-z0-9_]*)\""
)


class RedirectReader(NodeReader):
    def read_redirect(self, node: Node, arguments: list[Word]) -> Redirect:
        """Read a redirect.

        The grammar takes words after the target for further targets. For bash they are arguments of
        the command, so they are added to `arguments`.
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
        """Report a word right before a redirect that bash takes for the redirect's descriptor."""
        before = _find_adjacent(node)
        if before is not None and _DESCRIPTOR.search(self.text(before)):
            self.add_problem("a descriptor of a redirect was not understood")

    def read_here_string(self, node: Node) -> Redirect:
        self._check_descriptor(node)
        for child in node.children:
            if child.type in WORD_NODES:
                self.read_word(child)
            elif child.type not in ("<<<", "file_descriptor"):
                self.add_problem("a here-string was not understood")
                self.visit(child)
        return Redirect("<<<", None)

    def read_here_document(self, node: Node, arguments: list[Word]) -> list[Redirect]:
        """Read the redirects on a here-document's first line.

        Words after the delimiter are arguments of the command and added to `arguments`.
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
        """Report a here-document that may end elsewhere in bash, or that contains an expansion.

        If its end is misread, a command could be taken for text.
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
        """Find the index of the line where bash ends the here-document, -1 for none."""
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
    before = node.prev_sibling
    return before if before is not None and before.end_byte == node.start_byte else None


# Characters. Longer commands are not judged, which means they are asked about.
MAX_LENGTH = 10_000
# Characters. The grammar takes quadratic time for many "<": here 0.4 s, and 17 minutes for a
# million. Of longer commands only the beginning is parsed.
MAX_PARSED = 20_000

_BLANK = re.compile(rb"(?:[ \t]|\\\n)*")
_RESERVED = split_word_set(
    "if then elif else fi do done case esac while until for select in function { } ! [[ ]] (( )) "
    "coproc"
)
_TESTS = split_word_set("-b -c -d -e -f -g -h -k -L -n -N -O -p -r -s -S -u -w -x -z -G")
_COMPARISONS = split_word_set("= == != =~ < > -nt -ot -ef ! && || ( ) [ ] [[ ]]")
_TEST_NODES = split_word_set(
    "unary_expression binary_expression negation_expression parenthesized_expression"
)


@lru_cache(maxsize=256)
def parse_command(source: str) -> Script:
    """Parse a command. Never raises: what is not understood becomes a problem."""
    reader = _CommandReader(source[:MAX_PARSED].encode("utf-8", "surrogateescape"))
    if len(source) > MAX_LENGTH:
        reader.add_problem(f"longer than {MAX_LENGTH:,} characters")
    # The user approves what is visible, and bash runs the rest as well.
    if invisible := next((c for c in source if _is_invisible(c)), ""):
        reader.add_problem(f"holds the invisible character U+{ord(invisible):04X}")
    if "$\\\n" in source:  # bash joins it with what follows, even inside double quotes
        reader.add_problem("a line break inside a word")
    reader.read_tree(_get_parser().parse(reader.source).root_node)
    problems = tuple(dict.fromkeys(reader.problems))
    return Script(tuple(reader.commands), problems, is_whole=len(source) <= MAX_PARSED)


def _is_invisible(c: str) -> bool:
    if c.isascii():
        return c not in "\n\t" and not c.isprintable()
    return unicodedata.category(c) in ("Cf", "Cc", "Cs", "Zs", "Zl", "Zp", "Co", "Cn")


@lru_cache(maxsize=1)
def _get_parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class _CommandReader(RedirectReader):
    def visit_command(self, node: Node) -> None:
        words: list[Word] = []
        variables: list[str] = []
        redirects: list[Redirect] = []
        end = node.start_byte
        for child in node.children:
            self._check_gap_before(child, end, is_first=child.start_byte == node.start_byte)
            end = child.end_byte
            if child.type == "command_name":
                words.append(self._read_name(child))
            elif child.type == "variable_assignment":
                variables.append(self._read_assignment(child))
            elif child.type == "file_redirect":
                redirects.append(self.read_redirect(child, words))
            elif child.type == "herestring_redirect":
                redirects.append(self.read_here_string(child))
            elif child.type in WORD_NODES:
                words.append(self.read_word(child))
            else:
                self.add_problem(f"{child.type.replace('_', ' ')} as an argument is not judged")
                words.append(Word(self.text(child), None))
                self.visit(child)
        self._add(node, words, variables, redirects)

    def _add(
        self,
        node: Node,
        words: list[Word] | None = None,
        variables: list[str] | None = None,
        redirects: list[Redirect] | None = None,
    ) -> None:
        self.commands.append(
            SimpleCommand(
                self.text(node), tuple(words or ()), tuple(variables or ()), tuple(redirects or ())
            )
        )

    def _check_gap_before(self, child: Node, end: int, *, is_first: bool) -> None:
        """Report a line break before a part of a command, or a missing blank between words."""
        gap = self.source[end : child.start_byte]
        if not _BLANK.fullmatch(gap):
            self.add_problem("a line break inside a command")
        is_redirect = "redirect" in child.type or child.type in ("<", ">")
        if not is_first and not gap and not is_redirect:
            self.add_problem("two words without a blank between them")

    def _read_name(self, node: Node) -> Word:
        inner = node.children[0] if node.children else node
        if inner.type not in WORD_NODES:
            self.add_problem("the name of a program was not understood")
            return Word(self.text(node), None)
        word = self.read_word(inner)
        if word.raw in _RESERVED:
            self.add_problem(f"{word.raw} is not judged")
        return word

    def _read_assignment(self, node: Node) -> str:
        """Read an assignment; return the variable's name, "?" if there is none."""
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        if value is not None and value.type in WORD_NODES:
            self.read_word(value)
        elif value is not None:
            self.add_problem(f"{value.type.replace('_', ' ')} in an assignment is not judged")
            self.visit(value)
        is_plain = re.fullmatch(r"\w+\+?=.*", self.text(node), re.DOTALL)
        if name is None or name.type != "variable_name" or not is_plain:
            self.add_problem("an assignment was not understood")
        return self.text(name) if name is not None else "?"

    def visit_variable_assignment(self, node: Node) -> None:
        self._add(node, variables=[self._read_assignment(node)])

    def visit_variable_assignments(self, node: Node) -> None:
        self._add(node, variables=[self._read_assignment(child) for child in node.children])

    def visit_declaration_command(self, node: Node) -> None:
        name = self.text(node.children[0])
        words = [Word(name, name)]
        variables: list[str] = []
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                variables.append(self._read_assignment(child))
            elif child.type == "variable_name":
                variables.append(self.text(child))
            else:
                words.append(self.read_word(child))
        self._add(node, words, variables)

    def visit_for_statement(self, node: Node) -> None:
        variable = node.child_by_field_name("variable")
        if variable is not None:
            name = self.text(variable)
            self.commands.append(SimpleCommand(f"for {name}", variables=(name,)))
        for child in node.children:
            if variable is None or child.id != variable.id:
                self.visit(child)

    def visit_function_definition(self, node: Node) -> None:
        for child in node.children:
            if child.type != "word":
                self.visit(child)
            elif not re.fullmatch(r"[\w.-]+", self.text(child)):
                self.add_problem("the name of a function was not understood")

    def visit_compound_statement(self, node: Node) -> None:
        if node.children and node.children[0].type == "((":
            self.add_problem("arithmetic is not judged")
        self.visit_children(node)

    def visit_test_command(self, node: Node) -> None:
        self._read_test(node, splits_words=node.children[0].type == "[")

    def _read_test(self, node: Node, *, splits_words: bool) -> None:
        """Read the inside of [ ] or [[ ]].

        In [ ] bash splits words, so that an unquoted expansion could become an operator.
        """
        for child in node.children:
            if child.type in _TEST_NODES:
                self._read_test(child, splits_words=splits_words)
            elif child.type == "test_operator":
                if self.text(child) not in _TESTS | _COMPARISONS:
                    self.add_problem(f"the test {self.text(child)} is not judged")
            elif child.is_named:
                self.visit(child)
                is_fixed = child.type in ("word", "number", "string", "raw_string")
                if splits_words and not is_fixed:
                    self.add_problem("an expansion without quotes inside [ ]")
            elif child.type not in _COMPARISONS:
                self.add_problem(f"{child.type} inside a test is not judged")

    def visit_redirected_statement(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        count = len(self.commands)
        if body is not None:
            self.visit(body)
        has_command = body is not None and body.type == "command" and len(self.commands) > count
        at = len(self.commands) - 1
        arguments: list[Word] = []
        redirects: list[Redirect] = []
        for child in node.children:
            if body is not None and child.id == body.id:
                continue
            if child.type == "file_redirect":
                redirects.append(self.read_redirect(child, arguments))
            elif child.type == "herestring_redirect":
                redirects.append(self.read_here_string(child))
            elif child.type == "heredoc_redirect":
                redirects.extend(self.read_here_document(child, arguments))
            else:
                self.visit(child)
        text = self.text(node).partition("\n")[0]
        if has_command:
            self._extend_command(at, text, arguments, redirects)
            return
        if arguments:
            self.add_problem("words after a redirect")
        self.commands.append(SimpleCommand(text, redirects=tuple(redirects)))

    def _extend_command(
        self, at: int, text: str, arguments: list[Word], redirects: list[Redirect]
    ) -> None:
        command = self.commands[at]
        self.commands[at] = SimpleCommand(
            text,
            (*command.words, *arguments),
            command.variables,
            (*command.redirects, *redirects),
        )
