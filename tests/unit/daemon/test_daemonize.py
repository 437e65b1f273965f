"""Modules of a daemon, whose files an upgrade or removal may delete while the daemon runs."""

import subprocess
import sys

LOOK = """
import ast, sys
from zonedrive.daemon import daemonize

FOR_COMMANDS = {"zonedrive.logon"}  # its function `stored` is for other programs

daemonize.load()
loaded = {name for name in sys.modules if name.startswith("zonedrive.")}
for name in loaded - FOR_COMMANDS:
    for function in ast.walk(ast.parse(open(sys.modules[name].__file__, encoding="utf-8").read())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom) and node.module.startswith("zonedrive"):
                    found = {f"{node.module}.{each.name}" for each in node.names} & loaded
                    assert found or node.module in loaded, (name, ast.unparse(node))
"""


def test_a_running_daemon_imports_no_module_of_its_own() -> None:
    """All modules are imported at the start, also those that only an error needs."""
    ended = subprocess.run(
        [sys.executable, "-c", LOOK], capture_output=True, encoding="utf-8", check=False
    )
    assert ended.returncode == 0, ended.stderr
