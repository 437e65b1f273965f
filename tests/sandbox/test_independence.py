"""The sandbox is independent of the client, so that they cannot share a misunderstanding."""

import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "zonedrive" / "sandbox"


def test_it_imports_nothing_from_the_rest() -> None:
    """A process that serves has loaded no other module of zonedrive."""
    code = (
        "import sys, zonedrive.sandbox.serve, zonedrive.sandbox.__main__;"
        "print('\\n'.join(n for n in sys.modules if n.startswith('zonedrive')))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    strangers = [name for name in loaded if not name.startswith("zonedrive.sandbox")]
    assert strangers == ["zonedrive"]


def test_its_sources_name_nothing_of_the_rest() -> None:
    """The sources do not even import other modules for types."""
    for source in SOURCES.rglob("*.py"):
        for line in source.read_text().splitlines():
            words = line.split()
            if words[:1] in (["from"], ["import"]) and words[1].startswith("zonedrive"):
                assert words[1].startswith("zonedrive.sandbox"), f"{source}: {line}"
