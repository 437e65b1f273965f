"""`zonedrive doctor`: look at everything that a mount needs, and say what to do about the rest.

Must not know the checks.
"""

import click

from zonedrive.cli import control, show
from zonedrive.cli.options import account_option, json_option
from zonedrive.daemon.protocol import Message
from zonedrive.paths import AccountPaths

ASK_SECONDS = 10.0


@click.command()
@account_option
@click.option(
    "--profile",
    metavar="NAME|FILE",
    help="Check this deployment profile instead, on the account's service.",
)
@json_option
def doctor(account: str, profile: str | None, as_json: bool) -> None:
    """Check the machine, the account, the service and the mount.

    With --profile: whether the service has what a deployment profile says.  Nothing is changed
    there: lists are read, and of all else only the address is asked for.

    The output holds no secrets and no names, so it can be sent to others.  Exits with 0 when
    everything is in order, else with 1.
    """
    from zonedrive.daemon.checkup import examine, examine_profile
    from zonedrive.daemon.checkup.patient import Patient

    paths = AccountPaths(account)

    def ask() -> Message:
        return control.ask(paths, {"command": "vitals"}, timeout=ASK_SECONDS)

    checks = []
    with show.Progress() as progress:
        patient = Patient(paths, ask)
        for check in examine_profile(patient, profile) if profile else examine(patient):
            checks.append(check)
            progress.show(f"{check['name']} …")
    well = all(check["ok"] for check in checks)
    if as_json:
        show.as_json({"ok": well, "checks": checks})
    else:
        for check in checks:
            _show(check)
        bad = sum(not check["ok"] for check in checks)
        show.line("everything is in order" if well else show.count(bad, "problem"), "bold")
    click.get_current_context().exit(0 if well else 1)


def _show(check: dict[str, object]) -> None:
    mark, style = ("ok ", "") if check["ok"] else ("BAD", "bold red")
    show.line(f"{mark}  {check['name']}: {check['detail']}", style)
    if check["remedy"]:
        show.line(f"     {check['remedy']}")
