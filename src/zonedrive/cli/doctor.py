"""Command `doctor`: run all checks, and print the results or write a report."""

from typing import TYPE_CHECKING

import click

from zonedrive.cli import control_client, text_output
from zonedrive.cli.options import LocalPath, account_option, json_option
from zonedrive.daemon.protocol import Message
from zonedrive.formatting import count
from zonedrive.fuse import mountpoint
from zonedrive.paths import AccountPaths

if TYPE_CHECKING:
    from zonedrive.doctor.facts import DoctorFacts

ASK_SECONDS = 10.0
PUBLIC = ("name", "ok", "detail", "remedy")


@click.command()
@click.argument("folder", metavar="[DIR]", type=LocalPath("dir"), required=False)
@account_option
@click.option(
    "--profile",
    metavar="NAME|FILE",
    type=LocalPath(),
    help="Check this deployment profile against the account's service instead.",
)
@click.option(
    "--report",
    metavar="FILE",
    type=LocalPath(),
    help="Write a report for a bug tracker, without secrets and names; '-' prints it.",
)
@json_option
def doctor(
    folder: str | None, account: str, profile: str | None, report: str | None, as_json: bool
) -> None:
    """Check the machine, the account, the service and the mount.

    With DIR, also check that this folder can be mounted on.

    With --profile, check that the service has the operations of a deployment profile. Nothing is
    changed on the service: lists are read, and for all other operations only the address is tested.

    With --report, write the checks, versions, settings, counts and the log, without names. The
    report, and the output of --json, can be sent to others; the text output may contain names.
    Exits with 0 if everything is in order, else with 1.
    """
    from zonedrive.doctor import examine, examine_profile
    from zonedrive.doctor.facts import DoctorFacts

    if report is not None and (profile or as_json):
        raise click.UsageError("--report goes with neither --profile nor --json.")
    paths = AccountPaths(account)

    def ask() -> Message:
        return control_client.ask(paths, {"command": "vitals"}, timeout=ASK_SECONDS)

    wanted = mountpoint.absolute(folder) if folder else None
    checks = []
    with text_output.Progress() as progress:
        facts = DoctorFacts(paths, ask, wanted)
        for check in examine_profile(facts, profile) if profile else examine(facts):
            checks.append(check)
            progress.show(f"{check['name']} …")
    well = all(check["ok"] for check in checks)
    if as_json:
        public = [{name: check[name] for name in PUBLIC} for check in checks]
        text_output.as_json({"ok": well, "checks": public})
    elif report is not None:
        _report(facts, checks, report)
    else:
        _show(checks)
    click.get_current_context().exit(0 if well else 1)


def _show(checks: list[dict[str, object]]) -> None:
    for check in checks:
        mark, style = ("ok ", "") if check["ok"] else ("BAD", "bold red")
        text_output.line(f"{mark}  {check['name']}: {check['detail']}", style)
        if check["here"]:
            text_output.line(f"     {check['here']}")
    bad = sum(not check["ok"] for check in checks)
    text_output.line(count(bad, "problem") if bad else "everything is in order", "bold")


def _report(facts: "DoctorFacts", checks: list[dict[str, object]], file: str) -> None:
    from zonedrive.doctor.report import text

    written = text(facts, checks)
    if file == "-":
        for line in written.splitlines():
            text_output.line(line)
        return
    with text_output.replaced(file) as target:
        target.write(written.encode())
    text_output.say(f"the report is in {file}; read it before you send it")
