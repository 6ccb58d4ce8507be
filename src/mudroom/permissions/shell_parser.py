"""A shell command, read with a bash grammar: every simple command in it, and every reason why that may not be all of it.

The grammar is tolerant and now and then reads a command otherwise than bash does. So nothing is taken on trust: a node, a word or a
gap between two that is not on a list of understood ones becomes a doubt, and what is doubted is never allowed by a rule.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

from .shell_words import Redirect, Script, SimpleCommand, Word, has_expansion, parse_word, word_set

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_LENGTH = 10_000
"""Characters of a command that are judged; a longer one is doubted."""
MAX_NESTING = 60
"""Levels of nesting that are followed."""


@lru_cache(maxsize=256)
def parse_command(source: str) -> Script:
    """Read a command. Never raises: what is not understood is a doubt."""
    reader = _Reader(source.encode("utf-8", "surrogateescape"))
    if len(source) > MAX_LENGTH:
        reader.doubt(f"longer than {MAX_LENGTH:,} characters")
    if odd := next((c for c in source if _is_invisible(c)), ""):
        reader.doubt(f"holds the invisible character U+{ord(odd):04X}")
    reader.read(_parser().parse(reader.source).root_node)
    return Script(tuple(reader.commands), tuple(dict.fromkeys(reader.doubts)))


def _is_invisible(c: str) -> bool:
    if c.isascii():
        return c not in "\n\t" and not c.isprintable()
    return unicodedata.category(c) in ("Cf", "Cc", "Cs", "Zs", "Zl", "Zp", "Co", "Cn")


@lru_cache(maxsize=1)
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


_BLANK = re.compile(rb"(?:[ \t]|\\\n)*")
_GAP = re.compile(rb"(?:[ \t\n]|\\\n)*")
_WHOLE = {"string", "raw_string", "ansi_c_string", "heredoc_body", "comment"}
"""Nodes whose inside is no place for gaps."""
_FRAMES = word_set(
    "program list pipeline subshell compound_statement do_group if_statement elif_clause else_clause while_statement "
    "negated_command case_statement case_item function_definition command_substitution process_substitution"
)
_SIGNS = word_set(
    "; && || | |& & ( ) { } do done if then elif else fi while until for in case esac ;; ;& ;;& ! function ` $( <( >("
) | {"\n"}
_WORDS = word_set(
    "word string raw_string ansi_c_string concatenation number simple_expansion expansion command_substitution process_substitution "
    "arithmetic_expansion"
)
_EXPANSIONS = {
    "simple_expansion",
    "expansion",
    "arithmetic_expansion",
    "command_substitution",
    "process_substitution",
}
_RESERVED = word_set(
    "if then elif else fi do done case esac while until for select in function { } ! [[ ]] (( )) coproc"
)
_TESTS = word_set("-b -c -d -e -f -g -h -k -L -n -N -O -p -r -s -S -u -w -x -z -G")
_COMPARES = {
    "=",
    "==",
    "!=",
    "=~",
    "<",
    ">",
    "-nt",
    "-ot",
    "-ef",
    "!",
    "&&",
    "||",
    "(",
    ")",
    "[",
    "]",
    "[[",
    "]]",
}
_EXPRESSIONS = {
    "unary_expression",
    "binary_expression",
    "negation_expression",
    "parenthesized_expression",
}
_DELIMITER = re.compile(
    r"([A-Za-z_][A-Za-z0-9_]*)|'([A-Za-z_][A-Za-z0-9_]*)'|\"([A-Za-z_][A-Za-z0-9_]*)\""
)


class _Reader:
    """One reading of one command."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.commands: list[SimpleCommand] = []
        self.doubts: list[str] = []
        self._depth = 0

    def doubt(self, why: str) -> None:
        self.doubts.append(why)

    def text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")

    def read(self, root: Node) -> None:
        """Take in a whole tree."""
        if root.has_error:
            self.doubt("it is no valid bash")
        self._gaps(root)
        self._node(root)

    def _gaps(self, root: Node) -> None:
        """Between two leaves there must be nothing but blanks: what the grammar passed over, bash may not."""
        at, waiting = 0, [root]
        while waiting:
            node = waiting.pop()
            if node.child_count and node.type not in _WHOLE:
                waiting.extend(reversed(node.children))
                continue
            if not _GAP.fullmatch(self.source, at, max(at, node.start_byte)):
                self.doubt("a piece of it was not understood")
            at = max(at, node.end_byte)
        if not _GAP.fullmatch(self.source, at):
            self.doubt("its end was not understood")

    def _node(self, node: Node) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            self.doubt("nested too deep")
        elif (special := getattr(self, f"_{node.type}", None)) and node.is_named:
            special(node)
        elif node.type in _FRAMES:
            self._frame(node)
        elif node.type in _WORDS:
            self._word(node)
        elif node.is_named or node.type not in _SIGNS:
            self.doubt(f"{node.type.replace('_', ' ')} is not judged")
            for child in node.children:
                self._node(child)
        self._depth -= 1

    def _frame(self, node: Node) -> None:
        if node.type in ("command_substitution", "process_substitution"):
            self._substitution(node)
        for child in node.children:
            self._node(child)

    def _substitution(self, node: Node) -> None:
        text = self.text(node)
        if text.startswith("`") and "\\" in text:
            self.doubt("backslashes inside backquotes are not judged")

    def _comment(self, node: Node) -> None:
        before = self.source[node.start_byte - 1 : node.start_byte]
        if before and before not in b" \t\n;&|()":
            self.doubt("a # inside a word was taken for a comment")

    def _extglob_pattern(self, node: Node) -> None:
        self._literal(node)

    _regex = _extglob_pattern

    def _literal(self, node: Node) -> None:
        if has_expansion(self.text(node)):
            self.doubt("a piece of text holds an expansion")
        for child in node.children:
            self._node(child)

    def _word(self, node: Node) -> Word:
        """A word's value, and the commands substituted in it."""
        word = parse_word(self.text(node), node.type)
        if word.doubt:
            self.doubt(word.doubt)
        if node.type in _EXPANSIONS:
            self._inner(node)
            return word
        for child in node.children:
            if child.type in _WORDS and child.type not in ("word", "number"):
                self._inner(child)
            elif child.is_named and child.type not in ("word", "number", "string_content"):
                self._node(child)
        return word

    def _inner(self, node: Node) -> None:
        if node.type in ("command_substitution", "process_substitution"):
            self._frame(node)
        elif node.type in _EXPANSIONS:
            self._expansion_of(node)
        else:
            self._word(node)

    def _expansion_of(self, node: Node) -> None:
        """Only expansions that cannot run or set anything: $x, ${x}, ${#x}, and cutting from either end by a plain pattern."""
        plain = r"\$(?:\w+|[@*#?$!-])|\$\{#?\w+\}|\$\{\w+(?:%%?|##?)[\w./*?-]+\}|\$\{\w+:?-[\w./-]*\}|\$\(\(\s*\d+(?:\s*[-+*/%]\s*\d+)*\s*\)\)"
        if re.fullmatch(plain, self.text(node)):
            return
        self.doubt(f"the expansion {self.text(node)[:40]} is not judged")
        for child in node.children:
            if child.is_named and child.type not in ("variable_name", "special_variable_name"):
                self._node(child)

    def _command(self, node: Node) -> None:
        words: list[Word] = []
        assigned: list[str] = []
        redirects: list[Redirect] = []
        end = node.start_byte
        for child in node.children:
            between = self.source[end : child.start_byte]
            if not _BLANK.fullmatch(between):
                self.doubt("a line break inside a command")
            if (
                words
                and not between
                and "redirect" not in child.type
                and child.type not in ("<", ">")
            ):
                self.doubt("two words without a blank between them")
            end = child.end_byte
            if child.type == "command_name":
                words.append(self._name(child))
            elif child.type == "variable_assignment":
                assigned.append(self._assigned(child))
            elif child.type == "file_redirect":
                redirects.append(self._redirected(child, words))
            elif child.type == "herestring_redirect":
                redirects.append(self._here_string(child))
            elif child.type in _WORDS:
                words.append(self._word(child))
            else:
                self.doubt(f"{child.type.replace('_', ' ')} as an argument is not judged")
                words.append(Word(self.text(child), None))
                self._node(child)
        self.commands.append(
            SimpleCommand(self.text(node), tuple(words), tuple(assigned), tuple(redirects))
        )

    def _name(self, node: Node) -> Word:
        inner = node.children[0] if node.children else node
        if inner.type not in _WORDS:
            self.doubt("the name of a program was not understood")
            return Word(self.text(node), None)
        word = self._word(inner)
        if word.raw in _RESERVED:
            self.doubt(f"{word.raw} is not judged")
        return word

    def _assigned(self, node: Node) -> str:
        """The name of a variable that is set."""
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if value is not None and value.type in _WORDS:
            self._word(value)
        elif value is not None:
            self.doubt(f"{value.type.replace('_', ' ')} in an assignment is not judged")
            self._node(value)
        if (
            name is None
            or name.type != "variable_name"
            or not re.fullmatch(r"\w+\+?=.*", self.text(node), re.DOTALL)
        ):
            self.doubt("an assignment was not understood")
        return self.text(name) if name is not None else "?"

    def _variable_assignment(self, node: Node) -> None:
        self.commands.append(SimpleCommand(self.text(node), variables=(self._assigned(node),)))

    def _variable_assignments(self, node: Node) -> None:
        self.commands.append(
            SimpleCommand(
                self.text(node), variables=tuple(self._assigned(child) for child in node.children)
            )
        )

    def _declaration_command(self, node: Node) -> None:
        words = [Word(self.text(node.children[0]), self.text(node.children[0]))]
        assigned: list[str] = []
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                assigned.append(self._assigned(child))
            elif child.type == "variable_name":
                assigned.append(self.text(child))
            else:
                words.append(self._word(child))
        self.commands.append(SimpleCommand(self.text(node), tuple(words), tuple(assigned)))

    def _for_statement(self, node: Node) -> None:
        variable = node.child_by_field_name("variable")
        if variable is not None:
            self.commands.append(
                SimpleCommand(f"for {self.text(variable)}", variables=(self.text(variable),))
            )
        for child in node.children:
            if variable is None or child.id != variable.id:
                self._node(child)

    def _function_definition(self, node: Node) -> None:
        for child in node.children:
            if child.type != "word":
                self._node(child)
            elif not re.fullmatch(r"[\w.-]+", self.text(child)):
                self.doubt("the name of a function was not understood")

    def _compound_statement(self, node: Node) -> None:
        if node.children and node.children[0].type == "((":
            self.doubt("arithmetic is not judged")
        for child in node.children:
            self._node(child)

    def _test_command(self, node: Node) -> None:
        loose = node.children[0].type == "["
        self._expression(node, loose=loose)

    def _expression(self, node: Node, *, loose: bool) -> None:
        """The inside of [ ] or [[ ]]. `loose`: words are split, so that an expansion without quotes could become an operator."""
        for child in node.children:
            if child.type in _EXPRESSIONS:
                self._expression(child, loose=loose)
            elif child.type == "test_operator":
                if self.text(child) not in _TESTS | _COMPARES:
                    self.doubt(f"the test {self.text(child)} is not judged")
            elif child.is_named:
                self._node(child)
                if loose and child.type not in ("word", "number", "string", "raw_string"):
                    self.doubt("an expansion without quotes inside [ ]")
            elif child.type not in _COMPARES:
                self.doubt(f"{child.type} inside a test is not judged")

    def _redirected_statement(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        before = len(self.commands)
        if body is not None:
            self._node(body)
        extra: list[Word] = []
        redirects: list[Redirect] = []
        for child in node.children:
            if body is not None and child.id == body.id:
                continue
            if child.type == "file_redirect":
                redirects.append(self._redirected(child, extra))
            elif child.type == "herestring_redirect":
                redirects.append(self._here_string(child))
            elif child.type == "heredoc_redirect":
                redirects.extend(self._here_document(child, extra))
            else:
                self._node(child)
        self._attach(body, before, tuple(extra), tuple(redirects), self.text(node))

    def _attach(
        self,
        body: Node | None,
        before: int,
        extra: tuple[Word, ...],
        redirects: tuple[Redirect, ...],
        text: str,
    ) -> None:
        """Give redirects, and arguments behind them, to the command they belong to; to a part of its own for a group."""
        if body is not None and body.type == "command" and len(self.commands) > before:
            last = self.commands.pop()
            self.commands.append(
                SimpleCommand(
                    text.partition("\n")[0],
                    last.words + extra,
                    last.variables,
                    last.redirects + redirects,
                )
            )
            return
        if extra:
            self.doubt("words behind a redirect")
        self.commands.append(SimpleCommand(text.partition("\n")[0], redirects=redirects))

    def _redirected(self, node: Node, extra: list[Word]) -> Redirect:
        """A redirect; what the grammar takes for further targets of it are arguments."""
        targets: list[Word] = []
        operator = ""
        for child in node.children:
            if child.type == "file_descriptor":
                continue
            if child.type in _WORDS:
                targets.append(self._word(child))
            elif child.is_named:
                self.doubt(f"{child.type} as a target is not judged")
            else:
                operator += child.type
        if operator not in ("<", ">", ">>", "&>", "&>>", ">|", "<&", ">&", "<&-", ">&-"):
            self.doubt(f"the redirect {operator} is not judged")
        extra.extend(targets[1:])
        return Redirect(operator, targets[0] if targets else None)

    def _here_string(self, node: Node) -> Redirect:
        for child in node.children:
            if child.type in _WORDS:
                self._word(child)
            elif child.type not in ("<<<", "file_descriptor"):
                self.doubt("a here-string was not understood")
                self._node(child)
        return Redirect("<<<", None)

    def _here_document(self, node: Node, extra: list[Word]) -> list[Redirect]:
        redirects = [Redirect("<<", None)]
        start = next((child for child in node.children if child.type == "heredoc_start"), None)
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        self._check_here_document(node, start, body)
        for child in node.children:
            if child.type in (
                "<<",
                "<<-",
                "heredoc_start",
                "heredoc_body",
                "heredoc_end",
                "file_descriptor",
            ):
                continue
            if child.type == "file_redirect":
                redirects.append(self._redirected(child, extra))
            elif child.type in _WORDS:
                extra.append(self._word(child))
            else:
                self._node(child)
        return redirects

    def _check_here_document(self, node: Node, start: Node | None, body: Node | None) -> None:
        """The body must end where bash ends it, and hold no expansion: a line too much or too few would hide commands."""
        sign = _DELIMITER.fullmatch(self.text(start)) if start is not None else None
        if start is None or sign is None or node.children[-1].type != "heredoc_end":
            self.doubt("a here-document was not understood")
            return
        lines = self.source.decode("utf-8", "surrogateescape").split("\n")
        first, tabs = start.end_point.row + 1, node.children[0].type == "<<-"
        found = next(
            (
                n
                for n in range(first, len(lines))
                if (lines[n].lstrip("\t") if tabs else lines[n]) == sign[sign.lastindex or 1]
            ),
            -1,
        )
        if found != node.children[-1].start_point.row:
            self.doubt("a here-document ends otherwise than it seems")
        if b"<<" in self.source[start.end_byte :].split(b"\n", 1)[0]:
            self.doubt("two here-documents on one line")
        if body is not None and sign[1] and has_expansion(self.text(body)):
            self.doubt("a here-document holds an expansion")
            for child in body.children:
                if child.type != "heredoc_content":
                    self._node(child)
