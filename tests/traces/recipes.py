"""Recipes of the recordings: the folder's initial content, and the actions of a person or script.

The command runs in the folder, through a shell; `$STRACE` is placed before the traced program if
that is not the whole command.  `$OUT` is another folder.  Keys are typed one after the other, each
when the screen is stable.
"""

from typing import NamedTuple

TEXT = "first line\nsecond line\n"
MORE = "".join(f"line {number}\n" for number in range(2000))


class Recipe(NamedTuple):
    """Instructions for one trace."""

    program: str  # its package's name, for the version
    command: str
    before: dict[str, str | None]
    keys: tuple[str, ...] = ()


def one(program: str, command: str, *keys: str, text: str = TEXT) -> Recipe:
    """Return a recipe for a folder with one file."""
    return Recipe(program, command, {"notes.txt": text}, keys)


def _vim(settings: str) -> Recipe:
    edit = "%s/second/2nd/"
    return one("vim", f"vim -Nu NONE -i NONE -es -c 'set {settings}' -c '{edit}' -c wq notes.txt")


EMACS = (
    '(progn (find-file "notes.txt") (goto-char (point-max)) (insert "third line\\n")'
    " (save-buffer) (kill-emacs))"
)
GIT = (
    "git config --global user.name Alice; git config --global user.email a@acme.example;"
    " git config --global core.untrackedCache false;"
)
OFFICE = """
mkdir -p $OUT/p
run() { soffice -env:UserInstallation=file://$OUT/p --headless --norestore "$@"; }
cat >$OUT/save.py <<END
import time, uno
from com.sun.star.beans import PropertyValue
local = uno.getComponentContext()
resolver = local.ServiceManager.createInstanceWithContext(
    "com.sun.star.bridge.UnoUrlResolver", local)
for _ in range(150):
    try:
        remote = resolver.resolve("uno:pipe,name=zdrec;urp;StarOffice.ComponentContext")
        break
    except Exception:
        time.sleep(0.3)
desktop = remote.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", remote)
hidden = PropertyValue(Name="Hidden", Value=True)
document = desktop.loadComponentFromURL("file://$PWD/letter.odt", "_blank", 0, (hidden,))
document.Text.insertString(document.Text.End, " And more.", False)
document.store()
document.close(True)
try:
    desktop.terminate()
except Exception:
    pass
END
"""
LETTER = "Dear Bob,\n\nall is well.\n"

RECIPES: dict[str, Recipe] = {
    "vim": _vim("nocp"),
    "vim-backupcopy-auto": _vim("backup backupcopy=auto writebackup swapfile"),
    "vim-backupcopy-yes": _vim("backup backupcopy=yes writebackup swapfile"),
    "vim-backupcopy-no": _vim("backup backupcopy=no writebackup swapfile"),
    "vim-writebackup-no": _vim("nobackup backupcopy=no writebackup noswapfile"),
    "vim-plain": _vim("nobackup nowritebackup noswapfile"),
    "vim-typed": one(
        "vim", "TERM=xterm vim -Nu NONE -i NONE notes.txt", "Go", "third line\x1b", ":w\r",
        "othe fourth\x1b", ":wq\r",
    ),
    "nano": one("nano", "TERM=xterm nano -I notes.txt", "first, ", "\x0f", "\r", "\x18"),
    "nano-backup": one("nano", "TERM=xterm nano -I -B notes.txt", "first, ", "\x0f", "\r", "\x18"),
    "emacs": one("emacs-nox", f"emacs -Q --batch --eval '{EMACS}'"),
    "emacs-by-copying": one(
        "emacs-nox", f"emacs -Q --batch --eval '(setq backup-by-copying t)' --eval '{EMACS}'"
    ),
    "emacs-no-backup": one(
        "emacs-nox", f"emacs -Q --batch --eval '(setq make-backup-files nil)' --eval '{EMACS}'"
    ),
    "emacs-typed": one(
        "emacs-nox", "TERM=xterm emacs -Q -nw notes.txt", "hello ", "\x18\x13", "\x18\x03"
    ),
    "mousepad": one(
        "mousepad",
        "xvfb-run -a dbus-run-session sh -c '$STRACE mousepad notes.txt & sleep 4;"
        " xdotool search --sync --onlyvisible --class mousepad windowfocus; sleep 1;"
        " xdotool key ctrl+End; xdotool type \"third line\"; sleep 1; xdotool key ctrl+s;"
        " sleep 2; xdotool key ctrl+q; sleep 1; wait'",
    ),
    "libreoffice-store": Recipe(
        "libreoffice-core-nogui",
        OFFICE + "$STRACE soffice -env:UserInstallation=file://$OUT/p --headless --norestore"
        " '--accept=pipe,name=zdrec;urp' & /usr/bin/python3 $OUT/save.py; wait",
        {"letter.odt": "@odt"},
    ),
    "libreoffice-convert": Recipe(
        "libreoffice-core-nogui",
        OFFICE + "$STRACE soffice -env:UserInstallation=file://$OUT/p --headless --norestore"
        " --convert-to pdf letter.txt",
        {"letter.txt": LETTER},
    ),
    "sed-i": one("sed", "sed -i s/second/2nd/ notes.txt"),
    "sed-i-backup": one("sed", "sed -i~ s/second/2nd/ notes.txt"),
    "perl-i": one("perl-base", "perl -pi -e s/second/2nd/ notes.txt"),
    "rsync": one("rsync", "echo third >$OUT/notes.txt; rsync $OUT/notes.txt ."),
    "rsync-a": one("rsync", "echo third >$OUT/notes.txt; rsync -a $OUT/ ./"),
    "rsync-inplace": one("rsync", "echo third >$OUT/notes.txt; rsync --inplace $OUT/notes.txt ."),
    "rsync-append": one(
        "rsync", "(cat notes.txt; echo third) >$OUT/notes.txt; rsync --append $OUT/notes.txt ."
    ),
    "rsync-delay-updates": one(
        "rsync", "echo third >$OUT/notes.txt; rsync -a --delay-updates $OUT/ ./"
    ),
    "rsync-big": one(
        "rsync", "(cat notes.txt; echo more) >$OUT/notes.txt; rsync -a --no-whole-file $OUT/ ./",
        text=MORE,
    ),
    "git": Recipe(
        "git",
        GIT + "git init -q --template= -b main; git add notes.txt; git commit -qm one;"
        " echo third >>notes.txt; git commit -qam two; git status -s; git gc -q",
        {"notes.txt": TEXT},
    ),
    "git-work-tree": Recipe(
        "git",
        GIT + "git init -q --template= -b main --separate-git-dir=$OUT/git; rm -f .git;"
        " export GIT_DIR=$OUT/git GIT_WORK_TREE=$PWD; echo third >>notes.txt;"
        " git add notes.txt; git commit -qm one; echo fourth >>notes.txt;"
        " git commit -qam two; git checkout -q HEAD~1 notes.txt",
        {"notes.txt": TEXT},
    ),
    "cp-over": one("coreutils", "echo third >$OUT/n; cp $OUT/n notes.txt"),
    "cp-new": one("coreutils", "echo third >$OUT/n; cp -p $OUT/n new.txt"),
    "mv-over": one("coreutils", "echo third >$OUT/n; mv $OUT/n notes.txt"),
    "mv-new": one("coreutils", "echo third >$OUT/n; mv $OUT/n new.txt"),
    "install": one("coreutils", "echo third >$OUT/n; install -m 644 $OUT/n notes.txt"),
    "tar-x": Recipe(
        "tar",
        "(cd $OUT && echo third >notes.txt && echo x >a.txt && tar cf t.tar notes.txt a.txt);"
        " tar xf $OUT/t.tar", {"notes.txt": TEXT},
    ),
    "keepassxc": Recipe(
        "keepassxc",
        "(echo secret; echo secret) | keepassxc-cli db-create -t 100 -p $OUT/seed.kdbx;"
        " cat $OUT/seed.kdbx >safe.kdbx; sync -d safe.kdbx;"
        " echo secret | $STRACE keepassxc-cli mkdir safe.kdbx Work",
        {"safe.kdbx": "placeholder"},
    ),
    "echo-append": one("dash", "echo third >>notes.txt; echo fourth >>notes.txt"),
    "python-write": one(
        "python3.11-minimal", "python3 -c 'open(\"notes.txt\", \"w\").write(\"third\\n\")'"
    ),
    "python-append-fsync": one(
        "python3.11-minimal",
        "python3 -c 'import os; f = open(\"notes.txt\", \"a\");"
        ' [(f.write("line %d\\n" % n), f.flush(), os.fsync(f.fileno())) for n in range(20)]\'',
    ),
    "dd-conv-notrunc": one(
        "coreutils",
        "echo 2ND | dd of=notes.txt bs=1 seek=11 count=3 conv=notrunc,fsync status=none"
    ),
}  # fmt: skip
