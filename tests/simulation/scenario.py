"""Scenarios: the actions of people, networks and machines, as data made from a seed.

A scenario is complete: running it twice gives the same trace. It can be written as text, read
again, and shortened by deleting steps.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from tests.harness.partial_profile import COMBINED
from tests.model.programs import FOLDERS, LARGE, NAMES, PATHS, VERBS
from tests.simulation.network import ORDINARY, PAGES
from zonedrive.content.slots import CHUNK

SAVES = (
    "save_synced", "write_on", "save_slowly", "save_shorter", "save_beside_backup",
    "save_redirected", "save_renamed_open",
)  # fmt: skip

WEB, SERVICE = "W", "S"
MACHINES = "ABC"
DAY_S = 86_400.0
SANDBOX_SHARE = 1 / 40  # of the seeds run on the sandbox
PAGING_SHARE = 1 / 2  # of the seeds with pages begin without them
OTHER_SETTINGS = ("close=wait", "fsync=service", "encrypt=no", "cache_size=100000")
COMMANDS = ("pin", "pin", "unpin", "send", "restore")
RESTORED_SHARE = 1 / 20  # of the seeds have a machine whose data is restored from a backup
OPERATIONS = ("make_folder", "move", "delete", "versions", "version_content", "levels")
BUSY = (
    "look", "save", "save_over", "save_over", "append", "rename", "rename", "aside", "swap",
    "unlink", "save_within", "save_beside_backup", "save_renamed_open", "write_on",
    "make_folder", "remove_folder", "move_folder",
)  # fmt: skip
SECOND_VERBS = (
    "look", "save", "save", "save_over", "save_within", "append", "aside", "rename", "unlink",
    "save_slowly", "write_on", "save_renamed_open", "log",
)  # fmt: skip
SHARED_VERBS = (
    "look", "save", "save", "save_over", "save_within", "save_within", "append", "append", "aside",
    "rename", "rename", "swap", "unlink", "move_folder", "save_slowly", "save_slowly", "write_on",
    "save_renamed_open", "save_redirected", "save_emptied", "save_beside_backup", "log",
)  # fmt: skip
SHARING = ("trash", "untrash", "resolve", "remove_tree")  # verbs that concern files of others, too
SECOND_NAMES = ("four.txt", "five.txt")  # only the second program uses them
DAMAGED_SHARE = 1 / 25  # of the seeds have a machine whose database is damaged
DAMAGES = ("flip", "flip", "flip", "zero_page", "cut", "delete")
SPOILS = ("delete", "delete", "truncate", "flip", "flip", "zero", "delete_index", "flip_index")
ENDS = {"pause": "resume", "full": "room", "failing": "sound"}


HEAD = (
    "seed", "profile", "users", "options", "planted", "service", "lacking", "times", "kernel",
    "pieces",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """Step of a scenario: `who` does `verb` at `at_s`, or when the previous step is done."""

    who: str
    verb: str
    at_s: float = 0.0
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.who, f"{self.at_s:.12g}", self.verb, *self.arguments])


@dataclass(frozen=True)
class Scenario:
    """Steps and conditions of one run."""

    seed: int
    profile: str = "sandbox"
    users: tuple[str, ...] = ("alice", "bob")  # of the machines A, B, C
    options: tuple[str, ...] = ()
    planted: tuple[str, ...] = ()  # paths that exist at first
    steps: tuple[Step, ...] = field(default=())
    # "memory", or "sandbox", or "paged": a sandbox whose lists have pages, from a step "paginate"
    # on if there is one
    service: str = "memory"
    lacking: tuple[str, ...] = ()  # operations that the profile `sandbox` lacks, see OPERATIONS
    times: str = "exact"  # or "whole": all times are whole seconds, or "mixed": some are
    kernel: str = "plain"  # or "caching"
    pieces: str = "usual"  # or "small": a file of some chunks is fetched and sent in pieces

    @property
    def machines(self) -> str:
        """Return the letters of the machines."""
        return MACHINES[: len(self.users)]

    def text(self) -> str:
        """Return the scenario in the form that `parse` reads."""
        head = [
            f"seed {self.seed}", f"profile {self.profile}", f"users {' '.join(self.users)}",
            f"options {' '.join(self.options)}", f"planted {' '.join(self.planted)}",
        ]  # fmt: skip
        head += [f"service {self.service}"] if self.service != "memory" else []
        head += [f"lacking {' '.join(self.lacking)}"] if self.lacking else []
        head += [f"times {self.times}"] if self.times != "exact" else []
        head += [f"kernel {self.kernel}"] if self.kernel != "plain" else []
        head += [f"pieces {self.pieces}"] if self.pieces != "usual" else []
        return "\n".join([*head, *map(str, self.steps)]) + "\n"

    def without(self, places: set[int]) -> "Scenario":
        """Return the scenario without the steps at these places."""
        kept = [step for place, step in enumerate(self.steps) if place not in places]
        return replace(self, steps=tuple(kept))


def parse(text: str) -> Scenario:
    """Read the text of a scenario. Raises ValueError."""
    head: dict[str, list[str]] = {}
    steps: list[Step] = []
    for line in filter(str.strip, text.splitlines()):
        first, *rest = line.split()
        if first in HEAD:
            head[first] = rest
        else:
            at, verb, *arguments = rest
            steps.append(Step(first, verb, float(at), tuple(arguments)))
    return Scenario(
        int(head["seed"][0]), head["profile"][0], tuple(head["users"]), tuple(head["options"]),
        tuple(head["planted"]), tuple(steps), head.get("service", ["memory"])[0],
        tuple(head.get("lacking", ())), head.get("times", ["exact"])[0],
        head.get("kernel", ["plain"])[0], head.get("pieces", ["usual"])[0],
    )  # fmt: skip


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    numbers = random.Random(f"scenario {seed}")
    profile = "published" if numbers.random() < 0.25 else "sandbox"
    machines = numbers.choice((1, 1, 2, 2, 2, 3))
    users = tuple(numbers.choice(("alice", "bob")) for _ in range(machines))
    options = (
        f"settle={numbers.choice((0, 0.5, 1, 30))}",
        f"refresh={numbers.choice((1, 10, 60))}",
    )
    planted = tuple(path for path in PATHS if numbers.random() < 0.6)
    steps: list[Step] = []
    has_web = numbers.random() < (0.6 if machines > 1 else 0.3)
    start_s = 0.0
    for _ in range(numbers.choice((1, 1, 1, 1, 1, 2, 3))):
        for who in MACHINES[:machines]:
            steps += _work(numbers, who, start_s)
            steps += _network(numbers, f"{who}~", start_s)
            steps += _life(numbers, f"{who}!", start_s)
        steps += _web(numbers, start_s) if has_web else ()
        start_s += round(numbers.choice((30, 300, numbers.uniform(100, DAY_S))), 1)
    steps += _accounts(random.Random(f"accounts {seed}"), machines, start_s)
    drawn = Scenario(seed, profile, users, options, planted, tuple(steps))
    # By name: the share of the seeds, None if the function decides on that, and the function.
    changes: dict[str, tuple[float | None, Callable[[random.Random, Scenario], Scenario]]] = {
        "folders": (1 / 8, _with_moved_folders),
        "large": (1 / 10, _with_large_files),
        "unchanged": (None, _with_unchanged_saves),
        "emptied": (None, _with_emptied_files),
        "local": (1 / 12, _with_local_names),
        "pages": (1 / 20, _with_gateway_pages),
        "full": (1 / 20, _with_full_service),
        "times": (1 / 20, _with_coarse_times),
        "rights": (1 / 12, _with_lost_rights),
        "protected": (1 / 20, _with_protected_entries),
        "profile": (1 / 10, _with_other_profile),
        "settings": (1 / 6, _with_other_settings),
        "commands": (1 / 8, _with_commands),
        "clocks": (1 / 12, _with_set_clocks),
        "restored": (None, _with_restored_data),
        "trees": (1 / 8, _with_removed_trees),
        "trash": (1 / 10, _with_trash),
        "kernel": (1 / 6, _with_kernel_caches),
        "conflicts": (1 / 5, _with_resolved_conflicts),
        "readers": (1 / 5, _with_slow_readers),
        "attributes": (1 / 6, _with_set_attributes),
        "busy": (1 / 8, _with_busy_program),
        "second": (1 / 10, _with_second_writers),
        "cache": (1 / 12, _with_spoiled_caches),
        "shared": (1 / 10, _with_shared_files),
        "damage": (None, _with_damaged_database),
    }
    for name, (share, changed) in changes.items():
        numbers = random.Random(f"{name} {seed}")
        if share is None or numbers.random() < share:
            drawn = changed(numbers, drawn)
    is_sandbox = random.Random(f"service {seed}").random() < SANDBOX_SHARE
    return on_sandbox(drawn) if is_sandbox else drawn


def _with_unchanged_saves(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let programs save what they have read, without a change, in a third of the seeds."""
    if numbers.random() < 2 / 3:
        return scenario
    steps = tuple(
        replace(step, verb="save_unchanged")
        if step.verb == "look" and numbers.random() < 0.7
        else step
        for step in scenario.steps
    )
    option = numbers.choice((*("unchanged=skip",) * 4, "unchanged=version"))
    return replace(scenario, steps=steps, options=(*scenario.options, option))


class View:
    """Folders and files that one actor sees, as paths."""

    def __init__(self, folders: Iterable[str], files: Iterable[str]) -> None:
        self.folders, self.files = {*folders}, {*files}

    def remove(self, path: str) -> None:
        """Remove an entry, and what is in it."""
        for paths in (self.folders, self.files):
            paths -= {each for each in paths if is_in(each, path)}

    def move(self, old: str, new: str) -> None:
        """Give an entry another path, whose former entry is removed."""
        self.remove(new)
        for paths in (self.folders, self.files):
            moved = {each for each in paths if is_in(each, old)}
            paths ^= moved
            paths |= {new + each[len(old) :] for each in moved}

    def exchange(self, one: str, other: str) -> None:
        """Exchange two entries."""
        self.move(one, "")
        self.move(other, one)
        self.move("", other)

    def free(self, numbers: random.Random, outside: str = "/") -> str:
        """Return a path that no folder has, in the root or a folder that is not in `outside`."""
        folders = ["", *(each for each in sorted(self.folders) if not is_in(each, outside))]
        paths = [
            f"{folder}/{name}".lstrip("/")
            for folder in folders
            for name in FOLDER_NAMES
            if folder.count("/") < 2 and f"{folder}/{name}".lstrip("/") not in self.folders
        ]
        return numbers.choice(paths or FOLDER_NAMES)


FOLDER_NAMES = ("left", "right", "deep", "moved")
FOLDER_ACTS = ("move", "move", "move", "exchange", "exchange", "make", "remove", "replace")
FILE_VERBS = (
    "rename", "rename", "swap", "unlink", "save_over", "save_within", "append", "aside",
    "save_renamed_open", "write_on",
)  # fmt: skip


def is_file(path: str) -> bool:
    """Return True if a path of a step is that of a file: names of folders have no suffix."""
    return bool(PurePosixPath(path).suffix)


def is_in(path: str, folder: str) -> bool:
    """Return True if a path is that of a folder or of something below it."""
    return f"{path}/".startswith(f"{folder}/")


def _with_moved_folders(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let people rename, exchange, remove and make folders at the same time.

    The steps of each actor name entries that exist in its view, so that most of them succeed. In
    later phases, the view of an actor may be that of another one, whose changes it has got.
    """
    actors = [*scenario.machines]
    if len(actors) == 1 or numbers.random() < 0.5:
        actors.append(WEB)
    folders = [each for each in FOLDERS if each]
    views = {who: View(folders, scenario.planted) for who in actors}
    share = numbers.choice((0.3, 0.6, 0.9))  # of the steps, about folders
    steps = [step for step in scenario.steps if step.who not in (*MACHINES, WEB)]
    steps += [Step(who, "list_all", 0.0, (*PATHS[:2], "6")) for who in scenario.machines]
    start_s = 1.0
    for phase in range(numbers.choice((1, 1, 2, 3))):
        length_s = numbers.choice((0.3, 2, 8))
        for who in actors:
            if phase and numbers.random() < 0.7:
                other = views[numbers.choice(actors)]
                views[who] = View(other.folders, other.files)
            times = _pauses(numbers, start_s + numbers.choice((0, length_s)) / 2, length_s / 4)
            for _ in range(numbers.randrange(1, 5)):
                is_folder = bool(views[who].folders) and numbers.random() < share
                change = _change_folders if is_folder else _change_files
                steps += change(numbers, who, next(times), views[who])
        start_s += length_s + numbers.choice((0.2, 2, 12, 40, 100))
    return replace(scenario, steps=tuple(steps))


def _change_folders(numbers: random.Random, who: str, at_s: float, view: View) -> list[Step]:
    """Return the steps of one change of folders, and apply it to the view."""
    at_s = round(at_s, 3)
    path, act = numbers.choice(sorted(view.folders)), numbers.choice(FOLDER_ACTS)
    new, padding = view.free(numbers, path), str(numbers.randrange(300))
    rest = () if who == WEB else (padding,)
    others = [each for each in sorted(view.folders) if not (is_in(each, path) or is_in(path, each))]
    if act == "exchange" and others:
        other = numbers.choice(others)
        view.exchange(path, other)
        if who != WEB:
            return [Step(who, "swap", at_s, (path, other, padding))]
        ways = ((path, new), (other, path), (new, other))
        return [Step(who, "move", at_s, way) for way in ways]
    if act == "make" and who != WEB:
        new = view.free(numbers)
        view.folders.add(new)
        return [Step(who, "make_folder", at_s, (f"{new}/one.txt", path, padding))]
    if act == "remove":
        if who == WEB:
            steps = [Step(who, "delete", at_s, (path, new))]
            if numbers.random() < 0.5:
                back_s = round(at_s + numbers.choice((0, 0.5, 3)), 3)
                return [*steps, Step(who, "restore", back_s, (path, new))]
            view.remove(path)
            return steps
        verb = numbers.choice(("remove_tree", "remove_tree", "trash"))
        view.remove(path)
        is_made_again = numbers.random() < 0.5
        arguments = f"{path}/one.txt", new, "7" if verb == "trash" or is_made_again else "6"
        steps = [Step(who, verb, at_s, arguments)]
        if verb == "trash" and is_made_again:
            back_s = round(at_s + numbers.choice((0, 0.5, 3)), 3)
            steps.append(Step(who, "untrash", back_s, arguments))
        if is_made_again:
            view.folders.add(path)
        return steps
    view.move(path, new)
    steps = [Step(who, "move" if who == WEB else "rename", at_s, (path, new, *rest))]
    if act == "replace" and who != WEB:
        view.folders.add(path)
        view.files.add(f"{path}/one.txt")
        arguments = f"{path}/one.txt", new, padding
        steps += [Step(who, "make_folder", at_s, arguments), Step(who, "save", at_s, arguments)]
    return steps


def _change_files(numbers: random.Random, who: str, at_s: float, view: View) -> list[Step]:
    """Return the step of one change of a file, and apply it to the view."""
    at_s, padding = round(at_s, 3), str(numbers.choice((6, 7, numbers.randrange(300))))
    files = sorted(view.files)
    new = f"{numbers.choice(['', *sorted(view.folders)])}/{numbers.choice(NAMES[:2])}".lstrip("/")
    path = numbers.choice(files) if files and numbers.random() < 0.7 else new
    rest = () if who == WEB else (padding,)
    if path == new:
        view.files.add(new)
        verb, other = "write" if who == WEB else "save", numbers.choice(PATHS)
        return [Step(who, verb, at_s, (new, other, *rest))]
    verb = numbers.choice(("move", "move", "delete") if who == WEB else FILE_VERBS)
    if verb in ("move", "rename"):
        view.move(path, new)
    elif verb == "swap" and new in view.files:
        view.exchange(path, new)
    elif verb in ("delete", "unlink"):
        view.remove(path)
    return [Step(who, verb, at_s, (path, new, *rest))]


EMPTIED = {"save_within": "save_emptied", "save_shorter": "save_emptied", "unlink": "look"}


def _with_emptied_files(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let programs that write in place truncate the file to nothing first, in a fifth of the seeds.

    The machine dies during one of these saves. Programs of these seeds neither sync an empty file
    nor delete one, so that most of the empty versions are findings.
    """
    if numbers.random() < 4 / 5:
        return scenario
    steps = [replace(step, verb=EMPTIED.get(step.verb, step.verb)) for step in scenario.steps]
    if saves := [step for step in steps if step.verb == "save_emptied"]:
        save, after = numbers.choice(saves), int(numbers.expovariate(1 / 8))
        steps.append(Step(f"{save.who}!", "die", round(save.at_s + 0.5, 3), (str(after),)))
    return replace(scenario, steps=tuple(steps))


FORMER = "two.txt"
LOCAL_NAMES = ("one.txt~", ".one.txt.swp", FORMER)
"""Names that take the place of FORMER. FORMER itself means that a setting makes it local-only."""


def _with_local_names(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Give a third of the files a name of `local_only`.

    The service has some of these files at first, and people at a browser make others.
    """
    name = numbers.choice(LOCAL_NAMES)
    if name == FORMER:
        return replace(scenario, options=(*scenario.options, f"local_only={FORMER}:*~"))

    def named(paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(path.replace(FORMER, name) for path in paths)

    steps = (replace(step, arguments=named(step.arguments)) for step in scenario.steps)
    return replace(scenario, planted=named(scenario.planted), steps=tuple(steps))


def _with_gateway_pages(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let a gateway answer one or two machines with pages."""
    steps = list(scenario.steps)
    for _ in range(numbers.choice((1, 1, 2))):
        who, at_s = numbers.choice(scenario.machines), numbers.choice(steps).at_s
        end_s = at_s + numbers.expovariate(1 / 20)
        inside = [step for step in steps if step.who == f"{who}~" and at_s <= step.at_s <= end_s]
        steps = [step for step in steps if step not in inside]
        steps += [
            Step(f"{who}~", numbers.choice(sorted(PAGES)), at_s),
            Step(f"{who}~", "calm", round(end_s, 3)),
        ]
        steps.sort(key=lambda step: step.at_s if step.who.endswith("~") else 0.0)
    return replace(scenario, steps=tuple(steps))


def _with_full_service(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let the service have no space left for a while."""
    at_s = numbers.choice(scenario.steps).at_s
    end_s = round(at_s + numbers.expovariate(1 / 40), 3)
    return _with_service(scenario, [Step(SERVICE, "full", at_s), Step(SERVICE, "room", end_s)])


def _with_other_profile(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Take some operations from the profile `sandbox`."""
    if scenario.profile != "sandbox":
        return scenario
    lacking = [COMBINED] if numbers.random() < 0.6 else []
    lacking += [name for name in OPERATIONS if numbers.random() < 0.25]
    steps = tuple(step for step in scenario.steps if step.verb != "profile")
    return replace(scenario, lacking=tuple(lacking), steps=steps)


def _with_other_settings(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Change some settings from their defaults.

    Where an fsync waits for the service, programs that append write on after an fsync.
    """
    others = numbers.sample(OTHER_SETTINGS, numbers.choice((1, 1, 2)))
    steps = scenario.steps
    if "fsync=service" in others:
        steps = tuple(
            replace(step, verb="write_on") if step.verb == "append" else step for step in steps
        )
    return replace(scenario, options=(*scenario.options, *others), steps=steps)


def _with_commands(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let people run commands."""
    found = []
    for _ in range(numbers.choice((1, 2, 3, 5))):
        who = f"{numbers.choice(scenario.machines)}$"
        at_s, verb = numbers.choice(scenario.steps).at_s, numbers.choice(COMMANDS)
        found.append(Step(who, verb, at_s, (numbers.choice((*FOLDERS, *PATHS)) or ".",)))
    found.sort(key=lambda step: step.at_s)
    return replace(scenario, steps=(*scenario.steps, *found))


def _with_set_clocks(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Set the clock of a machine once or twice."""
    who, steps = f"{numbers.choice(scenario.machines)}!", list(scenario.steps)
    for _ in range(numbers.choice((1, 1, 2))):
        seconds = numbers.choice((1, -1)) * numbers.choice((2, 60, 3600, DAY_S, 365 * DAY_S))
        at_s = numbers.choice(scenario.steps).at_s
        later = (place for place, step in enumerate(steps) if step.who == who and step.at_s > at_s)
        place = next(later, len(steps))
        steps.insert(place, Step(who, "clock", at_s, (f"{seconds:.0f}",)))
    return replace(scenario, steps=tuple(steps))


def _with_restored_data(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Restore the data of a machine from an earlier copy, in a share of the seeds."""
    who = numbers.choice(scenario.machines)
    others = any(
        step.who == f"{who}@" or (step.who == f"{who}!" and step.verb == "power")
        for step in scenario.steps
    )
    if numbers.random() >= RESTORED_SHARE or others:
        return scenario
    times = sorted(numbers.choice(scenario.steps).at_s for _ in range(2))
    added = (Step(f"{who}@", "back_up", times[0]), Step(f"{who}@", "bring_back", times[1]))
    return replace(scenario, steps=(*scenario.steps, *added))


def _with_damaged_database(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Damage the database of a machine that is stopped for that, in a share of the seeds.

    A folder whose record is lost is made anew, if a coworker has deleted it.
    """
    who = f"{numbers.choice(scenario.machines)}@"
    makes_folders = scenario.profile == "sandbox" and "make_folder" not in scenario.lacking
    others = any(step.who == who or step.verb == "profile" for step in scenario.steps)
    if numbers.random() >= DAMAGED_SHARE or others or not makes_folders:
        return scenario
    at_s = round(numbers.choice(scenario.steps).at_s + numbers.uniform(0.1, 5), 3)
    step = Step(who, "damage", at_s, (numbers.choice(DAMAGES), str(numbers.random())))
    return replace(scenario, steps=(*scenario.steps, step))


def _with_removed_trees(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let programs remove folders with all entries, and create some of them again."""
    removing = ("remove_folder", "unlink", "make_folder")
    steps = (
        replace(step, verb="remove_tree")
        if step.who in MACHINES and step.verb in removing and numbers.random() < 0.6
        else step
        for step in scenario.steps
    )
    return replace(scenario, steps=tuple(steps))


def _with_trash(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let people move entries into the trash of a file manager and out of it."""
    steps: list[Step] = []
    for step in scenario.steps:
        uses = (
            step.who in MACHINES
            and step.verb in VERBS
            and numbers.random() < (0.7 if step.verb in ("unlink", "remove_folder") else 0.15)
        )
        if not uses:
            steps.append(step)
            continue
        path, other, _ = step.arguments
        padding = str(numbers.randrange(300))
        steps.append(replace(step, verb="trash", arguments=(path, other, padding)))
        if numbers.random() < 0.6:
            at_s = round(step.at_s + numbers.choice((0, 0, numbers.expovariate(1 / 20))), 3)
            to = numbers.choice((path, path, path, other))
            steps.append(Step(step.who, "untrash", at_s, (to, other, padding)))
    return replace(scenario, steps=tuple(steps))


def _with_resolved_conflicts(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let people do something with conflict copies."""
    is_alone = len(scenario.users) == 1 and all(step.who != WEB for step in scenario.steps)
    if is_alone:
        return scenario
    found: list[Step] = []
    for step in scenario.steps:
        found.append(step)
        if step.who in MACHINES and step.verb in (*VERBS, *SAVES) and numbers.random() < 0.5:
            at_s = round(step.at_s + numbers.choice((2, 10, numbers.expovariate(1 / 40))), 3)
            path, other, _ = step.arguments
            arguments = (path, other, str(numbers.randrange(300)))
            found.append(Step(step.who, "resolve", at_s, arguments))
    steps = [step for step in found if step.who not in MACHINES]
    for who in MACHINES:
        steps += sorted((step for step in found if step.who == who), key=lambda step: step.at_s)
    return replace(scenario, steps=tuple(steps))


def _with_set_attributes(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let programs set permission bits and times after some operations."""
    steps: list[Step] = []
    for step in scenario.steps:
        steps.append(step)
        if step.who in MACHINES and step.verb in (*VERBS, *SAVES) and numbers.random() < 0.5:
            path, other, _ = step.arguments
            path = other if step.verb in ("rename", "swap") else path
            arguments = (path, other, str(numbers.randrange(1, 300)))
            at_s = step.at_s + numbers.choice((0, 0, 5))
            verb = numbers.choice(("set_mode", "touch"))
            steps.append(replace(step, verb=verb, at_s=at_s, arguments=arguments))
    return replace(scenario, steps=tuple(steps))


def _with_busy_program(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let a program work on few files without pauses.

    Many of its operations happen during a request about an earlier one.
    """
    who, at_s = numbers.choice(scenario.machines), numbers.choice(scenario.steps).at_s
    few, found = numbers.sample(PATHS, numbers.choice((2, 3, 4))), []
    for _ in range(numbers.randrange(10, 30)):
        path, other = numbers.sample(few, 2)
        padding = str(numbers.randrange(300))
        found.append(Step(who, numbers.choice(BUSY), round(at_s, 3), (path, other, padding)))
        at_s += numbers.choice((0, numbers.expovariate(1 / 0.05)))
    steps = [step for step in scenario.steps if step.who != who]
    own = [step for step in scenario.steps if step.who == who]
    settle = numbers.choice(("settle=0", "settle=0.02"))
    options = tuple(settle if o.startswith("settle=") else o for o in scenario.options)
    steps += sorted([*own, *found], key=lambda step: step.at_s)
    return replace(scenario, steps=tuple(steps), options=options)


def _with_second_writers(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let a second program on each machine write in the same folders.

    It writes files of its own, so that the order of two operations on one file is known.
    """
    if any(step.verb in SHARING for step in scenario.steps):
        return scenario
    paths = [f"{folder}/{name}".lstrip("/") for folder in FOLDERS for name in SECOND_NAMES]
    steps = list(scenario.steps)
    for who in scenario.machines:
        own = [step for step in scenario.steps if step.who == who]
        found = []
        for _ in range(numbers.randrange(2, 10)):
            at_s = numbers.choice(own).at_s + numbers.choice((0, numbers.uniform(0, 1)))
            path, other = numbers.sample(paths, 2)
            arguments = (path, other, str(numbers.randrange(300)))
            verb = numbers.choice(SECOND_VERBS)
            found.append(Step(f"{who}+", verb, round(at_s, 3), arguments))
        steps += sorted(found, key=lambda step: step.at_s)
    return replace(scenario, steps=tuple(steps))


def _with_shared_files(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let two programs of one machine write the same files at once.

    Each of them has some files open for a while.
    """
    if any(step.verb in SHARING or step.who.endswith("+") for step in scenario.steps):
        return scenario
    who = numbers.choice(scenario.machines)
    own = [step for step in scenario.steps if step.who == who]
    steps = [step for step in scenario.steps if step.who != who]
    few, found = numbers.sample(PATHS, numbers.choice((1, 2, 3))), list[Step]()
    for _ in range(numbers.randrange(4, 20)):
        at_s = numbers.choice(own).at_s + numbers.choice((0, 0, numbers.uniform(0, 5)))
        path = numbers.choice(few)
        other = numbers.choice([each for each in PATHS if each != path])
        padding = numbers.choice((6, 6, numbers.randrange(300)))
        arguments, verb = (path, other, str(padding)), numbers.choice(SHARED_VERBS)
        program = numbers.choice((who, f"{who}+", f"{who}+"))
        found.append(Step(program, verb, round(at_s, 3), arguments))
    steps += sorted([*own, *found], key=lambda step: step.at_s)
    return replace(scenario, steps=tuple(steps))


def _with_spoiled_caches(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let another program change files of the cache.

    Nothing shows that the content of a file that is not encrypted was changed.
    """
    found = []
    for _ in range(numbers.choice((1, 2, 4))):
        who = f"{numbers.choice(scenario.machines)}%"
        at_s = numbers.choice(scenario.steps).at_s + numbers.choice((0, numbers.uniform(0, 5)))
        found.append(Step(who, numbers.choice(SPOILS), round(at_s, 3), (str(numbers.random()),)))
    found.sort(key=lambda step: step.at_s)
    options = tuple(option for option in scenario.options if option != "encrypt=no")
    return replace(scenario, steps=(*scenario.steps, *found), options=options)


def _with_slow_readers(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let a second program on each machine read files slowly.

    Coworkers write files of several sizes in these seeds, so that a mixture of two is none of them.
    """
    steps = [
        replace(step, arguments=(*step.arguments, str(numbers.choice((9, 40, 300, LARGE)))))
        if (step.who, step.verb) == (WEB, "write") and len(step.arguments) == 2
        else replace(step, verb="log")
        if step.verb == "append" and numbers.random() < 0.4
        else step
        for step in scenario.steps
    ]
    for who in scenario.machines:
        found = []
        others = [step for step in steps if step.who in {WEB, *MACHINES} - {who}]
        own = [step for step in steps if step.who == who]
        for _ in range(numbers.randrange(2, 8)):
            meanwhile = (others if numbers.random() < 0.7 else own) or own
            step = numbers.choice(meanwhile)  # while the file is open
            at_s = max(0.0, round(step.at_s - numbers.choice((0, 1, 3)), 3))
            size = numbers.choice((2, 10, 40, 150_000))
            seconds = round(numbers.choice((3, 12, 70, numbers.expovariate(1 / 15))), 1)
            path = step.arguments[0] if is_file(step.arguments[0]) else numbers.choice(PATHS)
            arguments = (path, str(size), str(seconds))
            found.append(Step(f"{who}&", "hold", at_s, arguments))
        steps += sorted(found, key=lambda step: step.at_s)
    return replace(scenario, steps=tuple(steps))


LARGER = (100, 3000, CHUNK - 100, CHUNK + 100, 2 * CHUNK, LARGE)
PARTLY = (
    *("patch",) * 3, "save_within", "save_over", "save", "look", "save_renamed_open", "rename",
    "swap", "unlink", "save_shorter", "save_emptied", "append", "save_unchanged",
)  # fmt: skip


def _with_large_files(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Let programs read and write parts of a few files of several chunks, while others change them.

    In most of these seeds, small pieces are fetched, so that a program has only a part of a file.
    """
    few = numbers.sample(PATHS, numbers.choice((1, 2, 3)))
    has_web = len(scenario.machines) == 1 or numbers.random() < 0.6
    actors = [*scenario.machines, *(f"{who}&" for who in scenario.machines), WEB]
    steps = [step for step in scenario.steps if step.who not in actors]
    length_s = numbers.choice((2, 8, 30))
    for who in [*scenario.machines, WEB] if has_web else scenario.machines:
        times = _pauses(numbers, numbers.uniform(0.5, 2), length_s / 5)
        for _ in range(numbers.randrange(2, 7)):
            path, size = numbers.choice(few), str(numbers.choice(LARGER))
            other = numbers.choice([each for each in (*few, *PATHS) if each != path])
            web = numbers.choice(("write", "write", "write", "move", "delete", "restore"))
            verb = web if who == WEB else numbers.choice(PARTLY)
            has_size = who != WEB or verb == "write"
            steps.append(Step(who, verb, next(times), (path, other, *([size] if has_size else []))))
    for who in scenario.machines:
        times = _pauses(numbers, numbers.uniform(0.5, 2), length_s / 3)
        for _ in range(numbers.randrange(0, 4)):
            size = str(numbers.choice((10, CHUNK - 1, CHUNK, 100_000)))
            seconds = str(round(numbers.uniform(0, length_s), 1))
            steps.append(Step(f"{who}&", "hold", next(times), (numbers.choice(few), size, seconds)))
    planted = tuple(path for path in PATHS if path in few or numbers.random() < 0.2)
    pieces = "small" if numbers.random() < 0.8 else "usual"
    return replace(scenario, steps=tuple(steps), planted=planted, pieces=pieces)


def _with_kernel_caches(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Give the machines kernels with caches."""
    return replace(scenario, kernel="caching")


def _with_lost_rights(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Take rights in the zone or membership from a person, or the zone from all, for a while."""
    user, at_s = numbers.choice(scenario.users), numbers.choice(scenario.steps).at_s
    end_s = round(at_s + numbers.expovariate(1 / 40), 3)
    less = Step(SERVICE, "level", at_s, (user, numbers.choice(("Add", "None"))))
    again = Step(SERVICE, "level", end_s, (user, "Modify"))
    if numbers.random() < 1 / 3:  # for everybody
        less, again = Step(SERVICE, "zone_gone", at_s), Step(SERVICE, "zone_back", end_s)
    return _with_service(scenario, [less, again])


def _with_protected_entries(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Protect files and folders against changes, or reading, for a while."""
    added = []
    for _ in range(numbers.randrange(1, 5)):
        at_s = round(numbers.choice(scenario.steps).at_s + 3 * numbers.random(), 3)
        path = numbers.choice((*PATHS, *(folder for folder in FOLDERS if folder)))
        verb = numbers.choice(("write_protect", "write_protect", "read_protect"))
        end_s = round(at_s + numbers.expovariate(1 / 40), 3)
        added += [Step(SERVICE, verb, at_s, (path,)), Step(SERVICE, "unprotect", end_s, (path,))]
    return _with_service(scenario, added)


def _with_service(scenario: Scenario, added: Sequence[Step]) -> Scenario:
    """Add steps of the service, in the order of their times."""
    of_service = [step for step in (*scenario.steps, *added) if step.who == SERVICE]
    others = [step for step in scenario.steps if step.who != SERVICE]
    of_service.sort(key=lambda step: step.at_s)
    return replace(scenario, steps=(*others, *of_service))


def _with_coarse_times(numbers: random.Random, scenario: Scenario) -> Scenario:
    """Give times of whole seconds to all answers or to those about changes.

    Behind a gateway's page, a client cannot read a version to find out that it is its own.
    """
    times = numbers.choice(("whole", "mixed"))
    has_pages = any(step.verb in PAGES for step in scenario.steps)
    return replace(scenario, times="whole" if has_pages else times)


def on_sandbox(scenario: Scenario) -> Scenario:
    """Return the scenario on a sandbox, with settings that concern the HTTP client."""
    numbers = random.Random(f"sandbox {scenario.seed}")
    options: tuple[str, ...] = (
        f"connections={numbers.choice((1, 2, 32, 32))}",
        f"upload_limit={numbers.choice((0, 0, 50_000, 1_000_000))}",
        f"download_limit={numbers.choice((0, 0, 50_000))}",
    )
    service = numbers.choice(("sandbox", "sandbox", "paged"))
    steps = scenario.steps
    if service == "paged" and steps:
        numbers = random.Random(f"paging {scenario.seed}")
        begin = Step(SERVICE, "paginate", numbers.choice(steps).at_s)
        is_later = numbers.random() < PAGING_SHARE
        steps = (*steps, begin) if is_later else steps
    options = (*scenario.options, *options)
    return replace(scenario, options=options, service=service, steps=steps, times="exact")


def _pauses(numbers: random.Random, at_s: float, mean_s: float) -> Iterator[float]:
    """Yield the times of steps, some of which follow at once."""
    while True:
        at_s += 0.0 if numbers.random() < 0.4 else numbers.expovariate(1 / mean_s)
        yield round(at_s, 3)


def _work(numbers: random.Random, who: str, at_s: float) -> list[Step]:
    found = []
    few = numbers.sample(PATHS, numbers.choice((2, 3, len(PATHS))))
    times = _pauses(numbers, at_s, 3)
    for _ in range(numbers.randrange(2, 10)):
        path, other = numbers.sample(few, 2)
        padding = numbers.choice((6, 6, numbers.randrange(300)))  # often of one size
        padding = LARGE if numbers.random() < 0.01 else padding
        verb = numbers.choice((*VERBS, *SAVES))
        found.append(Step(who, verb, next(times), (path, other, str(padding))))
    return found


def _network(numbers: random.Random, who: str, at_s: float) -> list[Step]:
    found = []
    for _ in range(numbers.choice((0, 0, 1, 1, 2))):
        at_s += numbers.expovariate(1 / 8)
        found.append(Step(who, numbers.choice(sorted(ORDINARY)), round(at_s, 3)))
        at_s += numbers.expovariate(1 / 30)
        found.append(Step(who, "calm", round(at_s, 3)))
    return found


def _life(numbers: random.Random, who: str, at_s: float) -> list[Step]:
    found: list[Step] = []
    for _ in range(numbers.choice((0, 0, 0, 1, 1, 2))):
        verb = numbers.choice(("die", "die", "die", "power", "restart", "pause", "full", "failing"))
        at_s += numbers.expovariate(1 / 10)
        arguments = (str(int(numbers.expovariate(1 / 15))),) if verb in ("die", "power") else ()
        found.append(Step(who, verb, round(at_s, 3), arguments))
        if verb in ENDS:
            at_s += numbers.expovariate(1 / 20)
            found.append(Step(who, ENDS[verb], round(at_s, 3)))
    return found


def _accounts(numbers: random.Random, machines: int, end_s: float) -> list[Step]:
    """Return steps that log off and on again, or change the profile, in a tenth of the seeds."""
    found = []
    for _ in range(numbers.choice((1, 1, 2, 3)) if numbers.random() < 0.1 else 0):
        who = f"{numbers.choice(MACHINES[:machines])}@"
        at_s = numbers.choice((numbers.uniform(0, 60), numbers.uniform(0, end_s)))
        found.append(Step(who, numbers.choice(("log_off", "profile")), round(at_s, 3)))
    return sorted(found, key=lambda step: step.at_s)


def _web(numbers: random.Random, at_s: float) -> list[Step]:
    found = []
    times = _pauses(numbers, at_s, 4)
    for _ in range(numbers.randrange(0, 6)):
        path, other = numbers.sample(PATHS, 2)
        verb = numbers.choice(
            ("write", "write", "write", "move", "delete", "restore", "move_folder",
             "delete_folder")
        )  # fmt: skip
        found.append(Step(WEB, verb, next(times), (path, other)))
    return found
