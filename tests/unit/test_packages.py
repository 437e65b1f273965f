"""Parts of the packages fit together; their builds have other commands."""

import os
import pwd
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from zonedrive.desktop.actions import ACTIONS

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
DEBIAN = PACKAGING / "debian"
ENTRY = PACKAGING / "desktop" / "zonedrive.desktop"


def pins(name: str) -> dict[str, str]:
    """Return library and version of one lock file."""
    text = (PACKAGING / name).read_text()
    return dict(re.findall(r"^([a-z0-9._-]+)==([^ ;]+)", text, re.MULTILINE))


def names(requirements: list[str]) -> set[str]:
    """Return the names of the required libraries."""
    found = [re.match(r"[A-Za-z0-9._-]+", one) for one in requirements]
    return {one[0].lower().replace("_", "-") for one in found if one}


def test_the_package_with_libraries_inside_has_all_that_zonedrive_needs() -> None:
    """A bundle has exactly the versions in the lock file of the tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bundle = pins("bundle-requirements.txt")
    needed = names(project["dependencies"] + project["optional-dependencies"]["sandbox"])
    assert needed <= set(bundle)
    assert bundle.items() <= pins("requirements.txt").items()


def test_debians_libraries_are_all_that_zonedrive_needs() -> None:
    """A package with Debian's libraries names each, with versions that Ubuntu 24.04 has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    control = (DEBIAN / "control.13").read_text()
    source, _, package = control.partition("\nPackage: ")
    for requirement in project["dependencies"]:
        name, least = re.findall(r"^([\w-]+)>=([\d.]+)", requirement)[0]
        assert f"python3-{name}," in f"{source},".replace("\n", ",")
        assert f"python3-{name} (>= {least})" in package
    for name in names(project["optional-dependencies"]["sandbox"]):
        assert re.search(rf"Recommends:[^:]*python3-{name}[,\n]", package)


def test_everything_that_is_installed_exists() -> None:
    """Every file in the package's lists exists."""
    for name in ("install", "zonedrive-desktop.install"):
        for line in (DEBIAN / name).read_text().splitlines():
            source = line.split()[0]
            assert source.startswith("build/share/") or list(ROOT.glob(source)), line


def test_the_pages_of_a_package_lead_to_each_other(tmp_path: Path) -> None:
    """Links between the pages and pictures below /usr/share/doc work."""
    subprocess.run([sys.executable, DEBIAN / "documents.py", tmp_path], check=True)
    pages = list(tmp_path.rglob("*.md"))
    names = {str(page.relative_to(tmp_path)) for page in pages}
    assert names >= {
        "README.md",
        "packaging/CHANGELOG.md",
        "src/zonedrive/docs/TROUBLESHOOTING.md",
        "src/zonedrive/docs/SECURITY.md",
    }
    for page in pages:
        for link in re.findall(r"\]\(([^)#:]+)[)#]", page.read_text("utf-8")):
            source = (ROOT / page.relative_to(tmp_path)).parent / link
            assert source.exists(), (page, link)
            if source.suffix in (".md", ".png"):
                assert (page.parent / link).is_file(), (page, link)


def test_the_suite_for_debian_has_what_the_tests_import() -> None:
    """The test packages in pyproject.toml come from Debian; linters are left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    script = (PACKAGING / "suite").read_text()
    for name in names(project["optional-dependencies"]["dev"]):
        if name not in ("mypy", "ruff", "hatchling", "editables") and not name.startswith("types-"):
            assert re.search(rf"\bpython3-{name}\b", script), name


@pytest.mark.parametrize(
    ("script", "words", "says"),
    [
        ("postinst", ["configure", "1.0"], "still runs version 1.0"),
        ("prerm", ["remove"], "is still mounted"),
    ],
)
def test_no_folder_of_a_user_steers_the_terminal_of_root(
    tmp_path: Path, script: str, words: list[str], says: str
) -> None:
    """apt prints all mounts as root, and any user may have mounted a folder with any name."""
    mounts = tmp_path / "mounts"
    mounts.write_bytes(
        b"https://x /home/me/My\\040zones fuse.zonedrive rw 0 0\n"
        b"https://x /tmp/Z\x1b[31mred\x1b]0;owned\x07\xc2\x9b31m\xe2\x80\xae\r"
        b" fuse.zonedrive rw 0 0\n"
    )
    text = (DEBIAN / script).read_text().replace("/proc/self/mounts", str(mounts))
    text = text.replace("/usr/lib/zonedrive", str(tmp_path / "none"))
    said = subprocess.run(["sh", "-c", text, script, *words], capture_output=True, check=True)
    first, second = said.stdout.splitlines()
    assert first.startswith(b"zonedrive: /home/me/My zones ") and says.encode() in first
    assert second.startswith(b"zonedrive: /tmp/Z?[31mred?]0;owned?")
    assert said.stdout.replace(b"\n", b"").decode("ascii").isprintable()


def test_the_desktop_entry_is_valid() -> None:
    """Menus show the entry, with an icon and with programs of the package."""
    said = subprocess.run(["desktop-file-validate", ENTRY], capture_output=True, text=True)
    assert (said.returncode, said.stdout) == (0, "")
    entry = ENTRY.read_text()
    for command in re.findall(r"^Exec=(\S+)", entry, re.MULTILINE):
        assert command in ("/usr/libexec/zonedrive/open-zones", "/usr/bin/zonedrive")
    icon = PACKAGING / "desktop" / f"{re.findall('^Icon=(.*)$', entry, re.MULTILINE)[0]}.svg"
    assert ET.parse(icon).getroot().attrib["viewBox"] == "0 0 128 128"


def test_software_centres_can_show_the_packages() -> None:
    """The AppStream data is valid, names the menu entry, and has the present version."""
    files = sorted(map(str, (PACKAGING / "desktop" / "metainfo").iterdir()))
    command = ["appstreamcli", "validate", "--no-net", *files]
    said = subprocess.run(command, capture_output=True, text=True)
    problems = re.findall(r"^ *[WE]: .*: ([a-z-]+)$", said.stdout, re.MULTILINE)
    assert set(problems) <= {"url-homepage-missing"}, said.stdout  # the project has none
    assert problems or said.returncode == 0, said.stdout + said.stderr
    application = ET.parse(
        PACKAGING / "desktop" / "metainfo" / "org.zonedrive.zonedrive.metainfo.xml"
    ).getroot()
    assert application.findtext("launchable") == ENTRY.name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    release = application.find("releases/release")
    assert release is not None
    assert release.attrib["version"] == project["version"]


def test_commands_of_the_desktop_package_are_in_it() -> None:
    """Service menu, bus and extensions name the folder that the package is installed to."""
    folder = "/usr/share/zonedrive-desktop"
    assert f"{folder[1:]}/zonedrive_desktop" in (DEBIAN / "zonedrive-desktop.install").read_text()
    menu = PACKAGING / "desktop" / "servicemenus" / "zonedrive.desktop"
    bus = PACKAGING / "desktop" / "cloud-providers" / "org.zonedrive.Desktop.service"
    commands = re.findall("^Exec=(.*)$", menu.read_text() + bus.read_text(), re.MULTILINE)
    main = f"/usr/bin/python3 {folder}/zonedrive_desktop/__main__.py "
    named = {each.removeprefix(main).split()[0] for each in commands if each.startswith(main)}
    assert len(named) == len(commands)
    assert named - {"side-bar"} <= ACTIONS.keys()
    for extension in (PACKAGING / "desktop" / "extensions").rglob("*.py"):
        assert f'sys.path.append("{folder}")' in extension.read_text()


def test_the_licences_name_the_folders_of_the_libraries(tmp_path: Path) -> None:
    """The name of a library's folder is often another spelling of the library's name."""
    for folder, name in (("jinja2-3.1.6", "Jinja2"), ("jaraco_context-6.1.2", "jaraco.context")):
        (tmp_path / f"{folder}.dist-info").mkdir()
        about = f"Metadata-Version: 2.4\nName: {name}\nVersion: {folder.partition('-')[2]}\n"
        (tmp_path / f"{folder}.dist-info" / "METADATA").write_text(about)
    said = subprocess.check_output([sys.executable, DEBIAN / "licences.py", tmp_path], text=True)
    named = re.findall("in the folder (.*) there", said)
    assert named == ["jaraco_context-6.1.2.dist-info", "jinja2-3.1.6.dist-info"]
    assert re.findall("^Files: .*/(.*)$", said, re.MULTILINE) == ["jaraco_context*", "jinja2*"]


def test_the_rule_for_reading_ahead_leaves_other_devices_alone() -> None:
    """The rule does not affect devices that are not a mount of zonedrive, or are gone."""
    rule = (PACKAGING / "udev" / "60-zonedrive.rules").read_text()
    assert 'SUBSYSTEM=="bdi"' in rule
    assert "/usr/libexec/zonedrive/read-ahead %k" in rule
    script = PACKAGING / "udev" / "read-ahead"
    for name in ("0:0", "../../../tmp", "$(id)", "0:1\n0:2", ""):
        said = subprocess.run([script, name], capture_output=True, text=True)
        assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


@pytest.fixture
def helper(tmp_path: Path) -> Path:
    """Return the helper of mount(8), where `zonedrive` is a program that prints its arguments."""
    program = tmp_path / "zonedrive"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$HOME" "$(id -u)" "$@"\n')
    program.chmod(0o755)
    tmp_path.chmod(0o755)
    return PACKAGING / "mount.fuse.zonedrive"


def mounted(helper: Path, program: Path, *arguments: str) -> tuple[int, list[str]]:
    """Run the helper as mount(8) does, with a small environment; return exit code and output."""
    said = subprocess.run(
        [helper, "https://service.example", "/home/me/My zones", *arguments],
        env={"PATH": f"{program}:/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    return said.returncode, (said.stdout or said.stderr).splitlines()


def test_a_line_in_fstab_finds_the_users_logon(helper: Path, tmp_path: Path) -> None:
    """mount(8) removes HOME; the account is still found in the user's home folder."""
    me = pwd.getpwuid(os.getuid())
    code, words = mounted(helper, tmp_path, "-n", "-o", "rw,noauto,user,refresh=5", "-v")
    assert (code, words[:2]) == (0, [me.pw_dir, str(me.pw_uid)])
    expected = ["https://service.example", "/home/me/My zones", "-o", "rw,noauto,user,refresh=5"]
    assert words[2:] == expected


@pytest.mark.parametrize(
    "folder", ["/tmp/a b", "/tmp/$(id)`id`", "/tmp/'\"\n;|&", "/tmp/\\040\\n", "/tmp/*"]
)
def test_names_and_options_reach_zonedrive_as_they_are(
    helper: Path, tmp_path: Path, folder: str
) -> None:
    """No shell interprets the arguments, and a comma after a backslash does not begin an option."""
    options = "rw,profile=/a\\,setuid=nobody,local_only=$(id)"
    arguments: list[str | Path] = [helper, f"https://x/$(id)?{folder}", folder, "-o", options]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    said = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    words = f"https://x/$(id)?{folder}\n{folder}\n-o\n{options}\n"
    assert said.stdout.split("\n", 2)[1:] == [str(os.getuid()), words]


def test_a_helper_whose_first_line_was_rewritten_refuses_to_run(helper: Path) -> None:
    """Without its options, Python would load modules from PYTHONPATH."""
    said = subprocess.run(["python3", helper, "https://x", "/x"], capture_output=True, text=True)
    assert (said.returncode, said.stderr.count("\n")) == (1, 1)
    assert "'#!/usr/bin/python3 -IS'" in said.stderr


def test_a_faked_mount_mounts_nothing(helper: Path, tmp_path: Path) -> None:
    """`mount --fake` mounts nothing."""
    assert mounted(helper, tmp_path, "-f", "-o", "rw") == (0, [])


def test_an_unknown_user_is_one_line(helper: Path, tmp_path: Path) -> None:
    """A mistyped setuid= gives one line."""
    code, words = mounted(helper, tmp_path, "-o", "rw,setuid=nobody-of-that-name")
    assert code == 1
    assert len(words) == 1
