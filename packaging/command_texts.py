"""Babel extraction method for the texts of commands, which the message catalogues contain.

The window and the notifications show texts that commands print in English: the results of checks,
and the messages and remedies of errors. This module finds them in calls of the functions in CALLS
and in the keyword arguments in KEYWORDS. A variable stands for every text that its module assigns
to it. A value of an f-string becomes a placeholder with the name of the value, and `count` becomes
a text with a number. Clauses are separate texts, because the window replaces some of them. Modules
whose texts only a terminal shows are in TERMINAL.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from typing import IO, Any

from babel.messages.extract import extract_python

from zonedrive import errors, remedies

CALLS = {name for name, each in vars(errors).items() if isinstance(each, type)}
CALLS |= {"bad", "good", "marked", "during", "Row", "tell", "_tell", "InsecurePermissions"}
CALLS |= {"Verdict", "say", "complain", "line", "print_failures", "unless_policy"}
KEYWORDS = ("doing", "remedy", "bare")
TEXTS = 4  # most positional arguments that are texts
TERMINAL = re.compile(
    r"/(sandbox/|failpoint|fuse/options|doctor/profile_check|remote/(client|clients|directory)\.py"
    r"|remote/profiles/load|cli/(browser|credentials|doctor|logon|organization|sandbox|text_output"
    r"|tokens)\.py)"
)


def extract(
    file: IO[bytes], keywords: Mapping[str, Any], tags: Collection[str], options: Any
) -> Iterator[tuple[Any, ...]]:
    """Yield the texts of a source file; see `babel.messages.extract.extract_python`."""
    yield from extract_python(file, keywords, tags, options)
    if not TERMINAL.search(file.name):
        file.seek(0)
        for text in texts(file.read()):
            yield 0, "translated", text, []


def texts(source: bytes, calls: Collection[str] = CALLS) -> Iterator[str]:
    """Yield the texts of commands in a module; if `calls` is given, only texts in those calls."""
    tree = ast.parse(source)
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        for name, value in _assignments(node):
            assigned.setdefault(name, []).append(value)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = _name(node.func)
        if name == "count" and calls is CALLS:
            things = [_constant(each) for each in node.args[1:]]
            if things and things[0]:
                yield f"{{n}} {things[0]}"
                yield f"{{n}} {things[1] if things[1:] else f'{things[0]}s'}"
        shown = [each.value for each in node.keywords if each.arg in KEYWORDS]
        if name in calls:
            shown += node.args[: 2 if name == "bad" else TEXTS]
        elif calls is not CALLS:
            continue
        for text in _texts(shown, assigned, set()):
            for clause in text.split("; "):
                clause = re.sub(r"^(\{\w+\}: )+", "", clause)
                if _is_text(clause, single=name in ("bad", "good", "marked")):
                    yield clause


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the name and the value of each variable that a statement assigns or extends."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(map(_name, target.elts), node.value.elts, strict=True)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign) and node.value:
        yield _name(node.target), node.value


def _texts(
    nodes: Collection[ast.AST], assigned: Mapping[str, list[ast.expr]], seen: set[str]
) -> Iterator[str]:
    """Yield the texts in expressions, and in the variables that the expressions name."""
    for node in nodes:
        if text := _constant(node):
            yield text
        elif isinstance(node, ast.JoinedStr):
            yield _template(node)
            values = [each.value for each in node.values if isinstance(each, ast.FormattedValue)]
            yield from _texts(values, assigned, seen)
        elif isinstance(node, ast.Name) and node.id not in seen:
            seen.add(node.id)
            yield from _texts(assigned.get(node.id, ()), assigned, seen)
        elif isinstance(node, ast.IfExp):
            yield from _texts([node.body, node.orelse], assigned, seen)
        elif isinstance(node, ast.Dict):
            yield from _texts(node.values, assigned, seen)
        elif isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
            yield from _texts(
                [node.func if isinstance(node, ast.Call) else node.value], assigned, seen
            )
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            yield from _texts([node.left, node.right], assigned, seen)
        elif isinstance(node, ast.BoolOp):
            yield from _texts(node.values, assigned, seen)
        elif isinstance(node, ast.Tuple):
            yield from _texts(node.elts, assigned, seen)


def _template(node: ast.JoinedStr) -> str:
    """Return the text of an f-string, with a placeholder for each value."""
    parts, names = [], list[str]()
    for each in node.values:
        if isinstance(each, ast.FormattedValue):
            name = _name(each.value).lower().strip("_") or "value"
            names.append(name)
            parts.append(f"{{{name}{names.count(name) if name in names[:-1] else ''}}}")
        else:
            parts.append(_constant(each))
    return "".join(parts)


def _name(node: ast.AST) -> str:
    """Return the name of a variable, attribute, function or item, "" for another expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return _name(node.value) if node.attr.startswith("__") else node.attr
    if isinstance(node, ast.Call):
        name = _name(node.func)
        return name if name == "verb" else next(filter(None, map(_name, node.args)), name)
    if isinstance(node, ast.Subscript):
        return _constant(node.slice) or _name(node.value)
    return ""


def _constant(node: ast.AST) -> str:
    """Return the text of a literal, "" for another expression."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_text(clause: str, *, single: bool) -> bool:
    """Return True if a clause is a text that the window shows.

    `single` also accepts a single word. Returns False if the window shows another sentence
    instead of the clause, because the clause names a command (see `remedies`).
    """
    words = re.sub(r"\{\w+\}", "", clause)
    form = r"[a-z]{2,}" if single else r"[a-z]{2,}.* |.* [a-z]{2,}"
    return bool(re.search(form, words)) and not remedies.replaced(clause)
