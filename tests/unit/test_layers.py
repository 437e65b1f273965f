"""The documented structure of the code is kept: imports go downward, each library has one
wrapper."""

from pathlib import Path

import pytest

from tests.harness import layers


def test_the_sources_keep_the_rules() -> None:
    """The folder names show the direction of a request; one test, which parses the files once."""
    sources = layers.modules(Path(__file__).parents[2] / "src" / "zonedrive")
    findings = [finding for rule in layers.RULES for finding in rule(sources)]
    assert not findings, "\n" + "\n".join(findings)


def planted(root: Path, name: str, text: str) -> list[layers.Module]:
    """Return the sources with one more file, as the rules see them."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return layers.modules(root)


@pytest.mark.parametrize(
    ("rule", "name", "text", "line", "word"),
    [
        (layers.direction, "state/a.py", "import os\nfrom zonedrive.vfs import files\n", 2, "vfs"),
        (layers.direction, "state/a.py", "from zonedrive.sync.planner import P\n", 1, "sync"),
        (layers.direction, "content/a.py", "import zonedrive.state.inode\n", 1, "state"),
        (layers.direction, "content/a.py", "from ..remote import link\n", 1, "remote"),
        (layers.direction, "errors.py", "from zonedrive.state import x\n", 1, "state"),
        (layers.direction, "sandbox/a.py", "from zonedrive.errors import E\n", 1, "errors"),
        (layers.direction, "sandbox/a.py", "from zonedrive import model\n", 1, "model"),
        (layers.direction, "extra/a.py", "import os\n", 1, "no layer"),
        (
            layers.direction,
            "sync/a.py",
            "if TYPE_CHECKING:\n    import zonedrive.fuse.operations\n",
            2,
            "fuse",
        ),
        (layers.direction, "vfs/a.py", "def f():\n    from zonedrive import cli\n", 2, "cli"),
        (layers.homes, "vfs/a.py", "import pyfuse3\n", 1, "pyfuse3"),
        (layers.homes, "daemon/a.py", "from httpx import Client\n", 1, "httpx"),
        (layers.sql, "vfs/a.py", "import sqlite3\n", 1, "sqlite3"),
        (layers.sql, "vfs/a.py", "x = 1\ny = 'SELECT a FROM b'\n", 2, "SQL"),
        (layers.atomic, "state/a.py", "async def f(): ...\n", 1, "synchronous"),
        (layers.atomic, "state/b.py", "import trio\n", 1, "trio"),
        (layers.transactions, "vfs/a.py", "def f(s):\n    s.transaction()\n", 2, "state/"),
        (layers.names, "vfs/utils.py", "", 1, "noun"),
        (
            layers.identity,
            "vfs/a.py",
            "class A(msgspec.Struct, frozen=True): ...\nclass B(msgspec.Struct, gc=False): ...\n",
            2,
            "B can change",
        ),
        (layers.identity, "vfs/a.py", "@dataclass\nclass A: ...\n", 2, "A can change"),
        (layers.identity, "sandbox/a.py", "@dataclass(slots=True)\nclass A: ...\n", 2, "A can"),
        (
            layers.callbacks,
            "vfs/a.py",
            "class A:\n    def f(self, b):\n        b.woken = self.wake\n    def wake(self): ...\n",
            3,
            "woken is set from outside",
        ),
        (layers.private, "remote/a.py", "def f(client):\n    return client._pool\n", 2, "_pool"),
    ],
)
def test_a_planted_violation_is_found(
    tmp_path: Path, rule: layers.Rule, name: str, text: str, line: int, word: str
) -> None:
    """A violation is reported with file, line and reason."""
    findings = list(rule(planted(tmp_path, name, text)))
    assert len(findings) == 1, findings
    assert findings[0].startswith(f"{tmp_path / name}:{line}: ")
    assert word in findings[0]


def test_a_cycle_of_imports_is_found(tmp_path: Path) -> None:
    """Modules that import each other are reported."""
    planted(tmp_path, "vfs/a.py", "from zonedrive.vfs.b import x\n")
    found = list(layers.cycles(planted(tmp_path, "vfs/b.py", "import zonedrive.vfs.a\n")))
    assert len(found) == 1
    assert "vfs.a" in found[0]
    assert "vfs.b" in found[0]


def test_allowed_code_is_not_reported(tmp_path: Path) -> None:
    """Mentions of SQL in a docstring, and imports downward, are not reported."""
    sources = planted(
        tmp_path, "vfs/a.py", '"""SELECT a FROM b."""\n\nfrom zonedrive.state.inode import Inode\n'
    )
    assert [finding for rule in layers.RULES for finding in rule(sources)] == []
