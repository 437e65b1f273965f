"""Checks of the service: reachability, certificate, clock, and validity of the logon.

Changes nothing there.
"""

import trio

from zonedrive.doctor.facts import DoctorFacts
from zonedrive.doctor.result import CheckResult
from zonedrive.errors import (
    NotLoggedOn,
    TimedOut,
    Unavailable,
    Untrusted,
    ZonedriveError,
)
from zonedrive.logon.account import Account
from zonedrive.logon.api import open_access
from zonedrive.logon.bearer_auth import Bearer
from zonedrive.logon.secrets import Secret
from zonedrive.remote.probe import ProbeResult

AHEAD = 60.0  # seconds; one-time codes are refused soon beyond that
ENDING = 7.0  # days


def reachable(patient: DoctorFacts) -> CheckResult | None:
    """Check that the service answers."""
    seen = patient.glance
    if seen is None:
        return None
    if isinstance(seen, ProbeResult):
        return CheckResult(
            True, f"answers after {seen.seconds * 1000:.0f} ms, with a new connection"
        )
    if isinstance(seen, Untrusted):
        return CheckResult(True, "somebody answers, see certificate")
    if isinstance(seen, TimedOut):
        return CheckResult(False, "does not answer in time", "look at the network, VPN and proxy")
    if isinstance(seen, Unavailable):
        return CheckResult(False, "answers that it cannot serve now", "try again later")
    return CheckResult(
        False,
        f"cannot be reached ({type(seen).__name__})",
        "look at the network, VPN and proxy; what you write waits",
    )


def certificate(patient: DoctorFacts) -> CheckResult | None:
    """Check that the certificate is trusted, and when it expires."""
    seen = patient.glance
    if isinstance(seen, Untrusted):
        return CheckResult(
            False,
            "is not one that this machine trusts",
            "give your authority's certificate to 'zonedrive logon --ca-file'; do not go on"
            " where it was trusted yesterday: ask the administrator",
            here=f"run '{patient.logon_command} --ca-file FILE' with your authority's certificate;"
            " do not go on where it was trusted yesterday: ask the administrator",
        )
    if not isinstance(seen, ProbeResult) or seen.certificate_days is None:
        return None
    days = f"trusted, good for {seen.certificate_days:.0f} more days"
    if seen.certificate_days < ENDING:
        return CheckResult(False, days, "ask the administrator of the service to renew it")
    return CheckResult(True, days)


def clock(patient: DoctorFacts) -> CheckResult | None:
    """Check that the local clock agrees with the service's."""
    seen = patient.glance
    if not isinstance(seen, ProbeResult) or seen.ahead is None:
        return None
    if abs(seen.ahead) > AHEAD:
        way = "ahead of" if seen.ahead > 0 else "behind"
        return CheckResult(
            False,
            f"this machine's clock is {abs(seen.ahead):.0f} s {way} the service's",
            "run 'timedatectl set-ntp true'",
        )
    return CheckResult(True, "as the service's")


def token(patient: DoctorFacts) -> CheckResult | None:
    """Check that the service accepts the logon."""
    if patient.account is None or not isinstance(patient.glance, ProbeResult):
        return None
    bearer = patient.bearer
    if not isinstance(bearer, Bearer):
        return None  # `logon` and `key` report this
    try:
        trio.run(_tried, patient.account, Secret(bearer.secret))
    except NotLoggedOn:
        return CheckResult(False, "is not accepted (any more)", "run 'zonedrive logon URL' again",
                       here=f"run '{patient.logon_command}'")  # fmt: skip
    except ZonedriveError as wrong:
        return CheckResult(False, f"could not be tried ({type(wrong).__name__})", "try again later")
    return CheckResult(True, "accepted by the service")


async def _tried(account: Account, bearer: Secret) -> None:
    async with open_access(account.base_url, account.ca_file) as access:
        access.carry(bearer)
        await access.check()
