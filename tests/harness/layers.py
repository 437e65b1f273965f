"""Rules for imports between the packages, checked in the sources.

Knows nothing of pytest.  A rule is a function from modules to findings; each finding is one line
with file, line, error and correction.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

GROUND = frozenset(
    {
        "model",
        "formatting",
        "errors",
        "causes",
        "paths",
        "config",
        "db",
        "cipher",
        "failpoint",
        "boot_clock",
        "memory",
        "process_setup",
        "transfer_slots",
        "toml_input",
        "supervisor",
        "observers",
        "snapshot",
        "single_flight",
        "remedies",
        "service_address",
        "translation",
    }
)

# What each package may import of zonedrive.  Downward only: the map in docs/ARCHITECTURE.md.
BELOW: dict[str, frozenset[str]] = {
    "ground": frozenset(),
    "content": GROUND,
    "state": GROUND | {"content"},
    "remote": GROUND,
    "logon": GROUND | {"remote"},
    "sync": GROUND | {"content", "state", "remote"},
    "vfs": GROUND | {"content", "state", "remote", "sync"},
    "prefetch": GROUND | {"content", "state", "remote", "sync", "vfs"},
    "pins": GROUND | {"content", "state", "remote", "sync", "vfs"},
    "views": GROUND | {"content", "state", "remote", "sync", "vfs", "prefetch", "pins"},
    "fuse": GROUND | {"state", "vfs", "views"},
    "daemon": GROUND
    | {"content", "state", "remote", "logon", "sync", "vfs", "prefetch", "pins", "views", "fuse"},
    "doctor": GROUND | {"content", "state", "remote", "logon", "fuse", "daemon"},
    "cli": GROUND | {"remote", "logon", "fuse", "daemon", "doctor", "sandbox"},
    "ui": GROUND | {"remote", "logon", "fuse", "daemon", "cli"},
    "sandbox": frozenset(),
    "desktop": frozenset(),
}

# Within a layer, its folders from the ground up; the layer's own modules stand beside them all.
WITHIN: dict[str, tuple[str, ...]] = {
    "remote": ("transport", "wire", "profiles"),
}

# Libraries that only one module may import.
HOMES: dict[str, frozenset[str]] = {
    "pyfuse3": frozenset({"fuse"}),
    "httpx": frozenset({"remote", "logon"}),
    "pycurl": frozenset({"remote", "doctor"}),  # doctor's report names its version
    "h11": frozenset({"logon", "sandbox"}),
    "starlette": frozenset({"sandbox", "ui"}),
    "uvicorn": frozenset({"sandbox", "ui"}),
    "jinja2": frozenset({"ui"}),
    "trustme": frozenset({"sandbox"}),
    "click": frozenset({"cli", "sandbox"}),
    "rich": frozenset({"cli"}),
    "keyring": frozenset({"logon"}),
    "gi": frozenset({"desktop"}),  # of the system's Python, which runs this package
}

# The modules that may contain SQL; the sandbox has a separate store.
STORES = frozenset(
    {
        "db",
        "state.repair",
        "state.inode_table",
        "state.pin_table",
        "state.reader",
        "state.row_upgrade",
        "state.intents",
        "state.pending_requests",
        "content.cache_index",
        "content.spool",
    }
)
# Names sqlite3 only to turn its exceptions into errno.
SEES_SQLITE_ERRORS = frozenset({"fuse.errno_table"})

SYNCHRONOUS = frozenset({"state"})
# A lock that others wait for, and a queue that others read.
KNOWS_TRIO = frozenset({"state.open_file", "state.invalidation"})
# `content` has a database of its own.
OPENS_TRANSACTIONS = frozenset({"state", "content", "sandbox"})
VAGUE = frozenset({"utils", "util", "common", "helpers", "helper", "manager", "misc"})

PRIVATE = re.compile(r"_[a-z]")
# The standard library documents these for everybody.
DOCUMENTED = frozenset({"_exit", "_replace", "_asdict", "_fields"})

SQL = re.compile(
    r"\s*(SELECT\s.+\sFROM\s|INSERT\s+(OR\s+\w+\s+)?INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s"
    r"|CREATE\s+(UNIQUE\s+)?(TABLE|INDEX)\s|PRAGMA\s+\w+)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Import:
    """Imported module: its dotted name and the place of the import."""

    name: str
    line: int
    when_run: bool  # at module level and not for type checkers only


@dataclass(frozen=True)
class Module:
    """Source file below the package."""

    name: str  # without "zonedrive.", e.g. "tree.store"; "tree" for the package's own file
    path: Path
    text: str

    @property
    def package(self) -> str:
        """Return the layer of the module."""
        first = self.name.split(".")[0]
        return "ground" if first in GROUND else first

    @cached_property
    def tree(self) -> ast.Module:
        """Return the syntax tree."""
        return ast.parse(self.text, str(self.path))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Return all nodes of the syntax tree, for several rules."""
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> list[Import]:
        """Return all imports in the file."""
        return list(self._walk(self.tree.body, when_run=True))

    def _walk(self, body: Iterable[ast.AST], *, when_run: bool) -> Iterator[Import]:
        for node in body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno, when_run)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                # `from package import module` names the module as well.
                for alias in node.names:
                    yield Import(f"{base}.{alias.name}", node.lineno, when_run)
            elif not isinstance(node, ast.expr):
                lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                if isinstance(node, ast.If) and _ends(node.test, "TYPE_CHECKING"):
                    lazy = True
                yield from self._walk(ast.iter_child_nodes(node), when_run=when_run and not lazy)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = ["zonedrive", *self.name.split(".")]
        if self.path.name != "__init__.py":
            parts.pop()
        parts = parts[: len(parts) - node.level + 1]
        return ".".join([*parts, node.module] if node.module else parts)

    def at(self, line: int, message: str) -> str:
        """Return a finding in this file."""
        return f"{self.path}:{line}: {message}"


Rule = Callable[[list[Module]], Iterator[str]]


def modules(root: Path) -> list[Module]:
    """Return every source file below `root`, the folder of the package."""
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = list(path.relative_to(root).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        found.append(Module(".".join(parts), path, path.read_text("utf-8")))
    return found


def direction(sources: list[Module]) -> Iterator[str]:
    """Yield imports that go upward, or between the three siblings."""
    for module in sources:
        if module.name in ("", "__main__"):
            continue
        below = BELOW.get(module.package)
        if below is None:
            yield module.at(1, f"{module.package}/ is no layer of the design: name it in BELOW")
            continue
        for each in module.imports:
            top, _, rest = each.name.partition(".")
            target = rest.split(".")[0]
            if top != "zonedrive" or not rest or target == module.package:
                continue
            if module.package == "ground" and target in GROUND:
                continue
            if target == "__version__":
                continue
            if target not in below:
                allowed = ", ".join(sorted(below - GROUND)) or "nothing above the ground"
                yield module.at(
                    each.line,
                    f"{module.package} must not import {each.name}; it may see: {allowed}",
                )


def rooms(sources: list[Module]) -> Iterator[str]:
    """Yield imports of a folder that is not below the importing one in the same layer."""
    for module in sources:
        order = WITHIN.get(module.package, ())
        room = module.name.split(".")[1] if module.name.count(".") > 1 else ""
        if room not in order:
            continue
        for each in module.imports:
            place = each.name.split(".")[1:3]
            if place[:1] == [module.package] and place[-1] in order[order.index(room) + 1 :]:
                yield module.at(each.line, f"{module.package}/{room} is below {place[-1]}/")


def homes(sources: list[Module]) -> Iterator[str]:
    """Yield imports of a library outside of the module that wraps it."""
    for module in sources:
        for each in module.imports:
            library = each.name.split(".")[0]
            if library in HOMES and module.package not in HOMES[library]:
                yield module.at(
                    each.line, f"{library} belongs to {' and '.join(sorted(HOMES[library]))} alone"
                )


def sql(sources: list[Module]) -> Iterator[str]:
    """Yield SQL outside of the store modules."""
    for module in sources:
        if module.name in STORES or module.package == "sandbox":
            continue
        for each in module.imports:
            if each.name.split(".")[0] == "sqlite3" and module.name not in SEES_SQLITE_ERRORS:
                yield module.at(each.line, f"sqlite3 belongs to {', '.join(sorted(STORES))}")
        documentation = {id(text) for text in _docstrings(module.nodes)}
        for node in module.nodes:
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in documentation
                and SQL.match(node.value)
            ):
                yield module.at(node.lineno, f"SQL belongs to {', '.join(sorted(STORES))}")


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and ast.get_docstring(node, clean=False):
            first = node.body[0]
            assert isinstance(first, ast.Expr)
            yield first.value


def atomic(sources: list[Module]) -> Iterator[str]:
    """Yield async code in state, which must be atomic between two awaits."""
    for module in sources:
        if module.package not in SYNCHRONOUS and module.name not in SYNCHRONOUS:
            continue
        for node in module.nodes:
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                yield module.at(node.lineno, f"{module.name} is synchronous: no async, no await")
        for each in module.imports:
            library = each.name.split(".")[0]
            if library in ("trio", "asyncio", "anyio") and module.name not in KNOWS_TRIO:
                yield module.at(each.line, f"{module.name} is synchronous: no {each.name}")


def transactions(sources: list[Module]) -> Iterator[str]:
    """Yield transactions outside state/, where each operation is one transaction."""
    for module in sources:
        if module.package in OPENS_TRANSACTIONS:
            continue
        for node in module.nodes:
            if isinstance(node, ast.Call) and _ends(node.func, "transaction"):
                yield module.at(node.lineno, "a transaction is an operation of state/: call one")


def names(sources: list[Module]) -> Iterator[str]:
    """Yield module names that do not say what the module does."""
    for module in sources:
        if VAGUE & set(module.name.split(".")):
            yield module.at(1, "a module is named after its job: find the noun")


def cycles(sources: list[Module]) -> Iterator[str]:
    """Yield import cycles."""
    known = {f"zonedrive.{module.name}": module.name for module in sources if module.name}
    graph: TopologicalSorter[str] = TopologicalSorter()
    for module in sources:
        for each in module.imports:
            if not each.when_run:
                continue
            target = known.get(each.name) or known.get(each.name.rpartition(".")[0])
            if target and target != module.name:
                graph.add(module.name, target)
    try:
        graph.prepare()
    except CycleError as wrong:
        yield "these modules import each other in a cycle: " + " -> ".join(wrong.args[1])


def identity(sources: list[Module]) -> Iterator[str]:
    """Yield changeable objects that are not compared by identity.

    By value, two handles that one program has on a file would be equal, and `list.remove` would
    take the wrong one.
    """
    for module in sources:
        for node in module.nodes:
            if not isinstance(node, ast.ClassDef):
                continue
            is_struct = any(_ends(base, "Struct") for base in node.bases)
            options = [{k.arg: k.value for k in node.keywords}] if is_struct else []
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if _ends(called, "dataclass"):
                    options.append(_options(decorator))
            for each in options:
                if not _is(each.get("frozen"), True) and not _is(each.get("eq"), False):
                    yield module.at(node.lineno, f"{node.name} can change: say frozen or eq=False")


def _ends(node: ast.expr, name: str) -> bool:
    """Return True if an expression is that name, or an attribute of that name."""
    return getattr(node, "id", None) == name or getattr(node, "attr", None) == name


def _options(node: ast.expr) -> dict[str | None, ast.expr]:
    """Return the keyword arguments if the expression is a call."""
    return {k.arg: k.value for k in node.keywords} if isinstance(node, ast.Call) else {}


def _is(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def private(sources: list[Module]) -> Iterator[str]:
    """Yield uses of private attributes outside of the modules that define them."""
    for module in sources:
        own, used = set(DOCUMENTED), []
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.id)
            elif isinstance(node, ast.Attribute) and PRIVATE.match(node.attr):
                of_itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                if of_itself:
                    own.add(node.attr)
                else:
                    used.append(node)
        for each in used:
            if each.attr not in own:
                yield module.at(each.lineno, f"{each.attr} is private to another module")


def callbacks(sources: list[Module]) -> Iterator[str]:
    """Yield functions that are assigned to an attribute of a foreign object.

    A callback is passed to the constructor, or registered as an observer (`observers.Observers`).
    """
    for module in sources:
        for node in module.nodes:
            if not isinstance(node, ast.ClassDef):
                continue
            methods = {
                each.name
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            for each in _statements(node):
                if isinstance(each, ast.Assign) and _is_function(each.value, methods):
                    for target in each.targets:
                        if isinstance(target, ast.Attribute) and not _of_itself(target):
                            yield module.at(
                                each.lineno, f"{target.attr} is set from outside: let it observe"
                            )


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield everything below a node but expressions, which contain no statements."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from _statements(child)


def _is_function(node: ast.expr, methods: set[str]) -> bool:
    """Return True for a lambda, a partial, or a method of the class itself."""
    if isinstance(node, ast.Call):
        return _ends(node.func, "partial")
    own = isinstance(node, ast.Attribute) and _of_itself(node) and node.attr in methods
    return own or isinstance(node, ast.Lambda)


def _of_itself(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


RULES: tuple[Rule, ...] = (
    direction, rooms, homes, sql, atomic, transactions, names, cycles, identity, private, callbacks,
)  # fmt: skip
