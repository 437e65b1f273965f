"""Start of actions by the menus of file managers."""

import importlib
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest


@pytest.mark.parametrize("number", [1, 2000])
def test_an_action_for_very_many_paths_starts(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The kernel accepts the arguments of each process, and each path is in one of them."""
    started = list[list[str]]()

    def spawn(words: list[str], flags: int) -> None:
        subprocess.run([sys.executable, "-S", "-c", "", *words], check=True)
        started.append(words)

    flags = SimpleNamespace(DEFAULT=0)
    repository = ModuleType("gi.repository")
    monkeypatch.setitem(sys.modules, "gi", ModuleType("gi"))
    monkeypatch.setitem(sys.modules, "gi.repository", repository)
    glib = SimpleNamespace(spawn_async=spawn, SpawnFlags=flags)
    monkeypatch.setattr(repository, "GLib", glib, raising=False)
    monkeypatch.delitem(sys.modules, "zonedrive.desktop.glib_loop", raising=False)
    start = importlib.import_module("zonedrive.desktop.glib_loop").start
    paths = [f"/home/me/Zones/{'ä' * 1000}{index}" for index in range(number)]
    start("keep", paths)
    assert all(words[2] == "keep" for words in started)
    assert [path for words in started for path in words[3:]] == paths
