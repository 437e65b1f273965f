"""Completion scripts for bash, zsh and fish that do not start zonedrive.

Knows nothing about reading definitions. Account names are looked up during completion; everything
else is part of the script.
"""

from collections.abc import Callable, Iterator

from zonedrive.cli.reference.commands import Command, Kind, Option, Value

HEAD = "# Made from the definitions of the commands of zonedrive; do not edit.\n"
STATE = '"${XDG_STATE_HOME:-$HOME/.local/state}/zonedrive"'


def bash(root: Command) -> str:
    """Return the script for /usr/share/bash-completion/completions/zonedrive."""
    paths = "|".join(_quoted(" ".join(one.words[1:])) for one in root.walk() if one is not root)
    cases = "".join(_bash_case(one) for one in root.walk())
    return f"""{HEAD}
_zonedrive() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command='' i
    # --option=value is three words here
    if [[ $cur == = ]]; then
        cur=''
    elif [[ $prev == = ]]; then
        prev=${{COMP_WORDS[COMP_CWORD-2]}}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${{command:+$command }}${{COMP_WORDS[i]}}" in
        {paths})
            command=${{command:+$command }}${{COMP_WORDS[i]}} ;;
        esac
    done
    COMPREPLY=()
    case $command in
{cases}    esac
}}

_zonedrive_words() {{
    compopt +o default
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}}

# Without a word in COMPREPLY, readline itself completes names of files.
_zonedrive_folders() {{
    compopt +o default -o dirnames
}}

_zonedrive_accounts() {{
    local folder names=''
    for folder in {STATE}/*/; do
        folder=${{folder%/}}
        [[ -d $folder ]] && names+=" ${{folder##*/}}"
    done
    _zonedrive_words "$names"
}}

complete -o default -F _zonedrive zonedrive
"""


def _bash_case(command: Command) -> str:
    lines = [f"    {_quoted(' '.join(command.words[1:]))})"]
    valued = [one for one in command.options if one.value]
    if valued:
        lines.append("        case $prev in")
        for option in valued:
            assert option.value is not None
            lines.append(f"        {'|'.join(option.names)}) {_bash_value(option.value)} return ;;")
        lines.append("        esac")
    names = [name for option in command.options for name in option.names]
    lines.append(f'        [[ $cur == -* ]] && _zonedrive_words "{" ".join(names)}" && return')
    if command.below:
        lines.append(f'        _zonedrive_words "{" ".join(one.name for one in command.below)}"')
    elif command.arguments:
        lines.append(f"        {_bash_value(command.arguments[-1]).rstrip(';')}")
    else:
        lines.append("        compopt +o default")
    return "\n".join([*lines, "        ;;", ""])


def _bash_value(value: Value) -> str:
    return {
        Kind.NOTHING: "compopt +o default;",
        Kind.WORDS: f'_zonedrive_words "{" ".join(value.words)}";',
        Kind.FILE: ":;",
        Kind.FOLDER: "_zonedrive_folders;",
        Kind.ACCOUNT: "_zonedrive_accounts;",
    }[value.kind]


# --- zsh -----------------------------------------------------------------------------------------


def zsh(root: Command) -> str:
    """Return the script _zonedrive for a folder of $fpath."""
    functions = "\n".join(_zsh_function(one) for one in root.walk())
    return f"""#compdef zonedrive
{HEAD}
{functions}
_zonedrive_accounts() {{
    local -a names=({STATE}/*(N/:t))
    _describe account names
}}

_zonedrive "$@"
"""


def _zsh_function(command: Command) -> str:
    specs = [spec for option in command.options for spec in _zsh_option(option)]
    name = "_" + "_".join(command.words)
    if not command.below:
        specs += [_zsh_argument(n, one) for n, one in enumerate(command.arguments, 1)]
        body = "".join(f" \\\n        {spec}" for spec in specs)
        return f"{name}() {{\n    _arguments{body}\n}}\n"
    body = "".join(f" \\\n        {spec}" for spec in specs)
    entries = "".join(
        f"\n            {_quoted(f'{one.name}:' + one.brief.replace(':', chr(92) + ':'))}"
        for one in command.below
    )
    calls = "".join(f"\n        {one.name}) _{'_'.join(one.words)} ;;" for one in command.below)
    return f"""{name}() {{
    local curcontext=$curcontext state state_descr line
    typeset -A opt_args
    _arguments -C{body} \\
        '1: :->command' '*:: :->rest'
    case $state in
    command)
        local -a commands=({entries}
        )
        _describe command commands
        ;;
    rest)
        case $words[1] in{calls}
        esac
        ;;
    esac
}}
"""


def _zsh_option(option: Option) -> Iterator[str]:
    text = option.help
    for special in ("\\", "[", "]", ":"):
        text = text.replace(special, "\\" + special)
    value = f":{_zsh_shown(option.value)}:{_zsh_action(option.value)}" if option.value else ""
    first = "*" if option.many else f"({' '.join(option.names)})"
    for name in option.names:
        yield _quoted(f"{first}{name}[{text}]{value}")


def _zsh_argument(number: int, value: Value) -> str:
    place = "*" if value.many else str(number)
    return _quoted(f"{place}:{_zsh_shown(value)}:{_zsh_action(value)}")


def _zsh_shown(value: Value) -> str:
    return value.shown.replace(":", "\\:")


def _zsh_action(value: Value) -> str:
    return {
        Kind.NOTHING: "{:}",  # a plain message would prevent the completion of options
        Kind.WORDS: f"({' '.join(value.words)})",
        Kind.FILE: "_files",
        Kind.FOLDER: "_files -/",
        Kind.ACCOUNT: "_zonedrive_accounts",
    }[value.kind]


# --- fish ----------------------------------------------------------------------------------------


def fish(root: Command) -> str:
    """Return the script zonedrive.fish for a folder of vendor completions."""
    lines = [line for one in root.walk() for line in _fish_lines(one)]
    return f"""{HEAD}
# The words of commands before the cursor begin with these; for a group they are all there is.
function __zonedrive_at
    set -l typed (commandline -opc)
    set -e typed[1]
    set -l plain
    for word in $typed
        string match -q -- '-*' $word; or set -a plain $word
    end
    if test "$argv[1]" = group
        test "$plain" = "$argv[2..-1]"
    else
        set -l words (math (count $argv) - 1)
        test "$plain[1..$words]" = "$argv[2..-1]"
    end
end

function __zonedrive_accounts
    set -l state ~/.local/state
    set -q XDG_STATE_HOME; and set state $XDG_STATE_HOME
    for folder in $state/zonedrive/*/
        basename $folder
    end
end

complete -c zonedrive -f
{chr(10).join(lines)}
"""


def _fish_lines(command: Command) -> Iterator[str]:
    kind = "group" if command.below else "command"
    condition = " ".join(["__zonedrive_at", kind, *command.words[1:]])
    begin = f"complete -c zonedrive -n {_quoted(condition)}"
    for one in command.below:
        yield f"{begin} -a {one.name} -d {_fish_quoted(one.brief)}"
    for option in command.options:
        names = " ".join(
            f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
        )
        value = _fish_value(option.value, "x") if option.value else ""
        yield f"{begin} {names}{value} -d {_fish_quoted(option.help)}"
    for argument in command.arguments[-1:]:
        if argument.kind is not Kind.NOTHING:
            yield f"{begin}{_fish_value(argument, '')}"


def _fish_value(value: Value, exclusive: str) -> str:
    return {
        Kind.NOTHING: " -x",
        Kind.WORDS: f" -{exclusive}a {_quoted(' '.join(value.words))}",
        Kind.FILE: " -r -F" if exclusive else " -F",
        Kind.FOLDER: f" -{exclusive}a '(__fish_complete_directories)'",
        Kind.ACCOUNT: f" -{exclusive}a '(__zonedrive_accounts)'",
    }[value.kind]


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _quoted(text: str) -> str:
    """Return `text` as one word for a POSIX shell."""
    return "'" + text.replace("'", "'\\''") + "'"


SHELLS: dict[str, Callable[[Command], str]] = {
    "bash-completion/completions/zonedrive": bash,
    "zsh/site-functions/_zonedrive": zsh,
    "fish/vendor_completions.d/zonedrive.fish": fish,
}
"""Functions by the path of their script below a `share` folder."""
