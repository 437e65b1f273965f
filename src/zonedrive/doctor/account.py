"""Checks of the account and its service.

The subjects are the settings, the organization's policies, the logon, the profile, the encryption
of local data, and the reachability, certificate and clock of the service. The checks change nothing
on the service.
"""

import re
import time
from urllib.parse import urlsplit

import trio

from zonedrive import config
from zonedrive.daemon.local_data import is_sealed
from zonedrive.doctor.facts import CheckResult, DoctorFacts, bad, good
from zonedrive.errors import (
    ConfigError,
    Forbidden,
    NoHomeDirectory,
    NotLoggedOn,
    NoTls,
    OtherHost,
    ProxyFailed,
    StoreError,
    TimedOut,
    Unavailable,
    Unreachable,
    Untrusted,
    ZonedriveError,
)
from zonedrive.logon.account import Account
from zonedrive.logon.api import open_access
from zonedrive.logon.bearer_auth import Bearer
from zonedrive.logon.secrets import InsecurePermissions, KeyringLocked, Secret
from zonedrive.logon.session_bus import FOREIGN, is_foreign
from zonedrive.paths import CLOSED, FAULTY, SYSTEM_FOLDER, config_file, not_moved
from zonedrive.remote.probe import ProbeResult
from zonedrive.remote.profiles.load import (
    hidden_file,
    is_installed,
    is_path,
    load_profile,
    packaged,
)
from zonedrive.remote.transport.proxies import proxy_for
from zonedrive.translation import marked

AGAIN = "run 'zonedrive logon URL' again"
NETWORK = "check the network, VPN and proxy"
KEPT = "pending changes are kept"
ADDRESS = "check the address that was given to 'zonedrive logon URL'"
RENEW = "check this computer's clock; else ask the service's administrator to renew it"
DAMAGED = "the stored logon is damaged"
WHERE = {
    "keyring": "in the desktop's keyring",
    "credentials": "given by systemd",
    "file": "in a file that only you can read, as no keyring is in use",
}

LOST = (
    "restore the former keyring if it was emptied or replaced; if it is lost permanently, run"
    " 'zonedrive logoff --discard', and log on"
)
RUNNING = (
    "the mount still has it: run 'zonedrive sync', so that nothing is pending; then"
    " 'zonedrive logoff', and log on"
)

FORBIDDEN = "run 'zonedrive mount DIR', which names the policy and the remedy"
SWITCH = (
    "set it back; to change it, 'zonedrive sync', then 'zonedrive logoff', change it, and log on"
)
FINISH = "run 'zonedrive sync', then 'zonedrive logoff', and log on"

AHEAD = 60.0  # seconds; if the clocks differ by more, the service may reject one-time codes
ENDING = 7.0  # days; minimum remaining validity of the certificate


def settings(facts: DoctorFacts) -> CheckResult | None:
    """Check that the user's settings file, config.toml, is valid."""
    try:
        _ = facts.settings
    except NoHomeDirectory:
        return None  # `home folder` reports this
    except ConfigError as wrong:
        where = _line(r"config\.toml(?::| line |, line )([0-9]+)", wrong)
        detail = f"config.toml cannot be used{where}"
        return bad(detail, "correct that line, or move the file away", here=wrong.line())
    if not config_file().exists():
        return good("default settings: there is no config.toml")
    return good("config.toml is valid")


def organization(facts: DoctorFacts) -> CheckResult | None:
    """Check that the administrator's config.toml, if any, is valid and permits the mount."""
    shared = config.organization(facts.paths.account)
    if shared.problems:
        first = shared.problems[0].line()
        effect = "; mounts are read-only until then" if shared.is_read_only else ""
        return bad(
            f"{SYSTEM_FOLDER / 'config.toml'} has an error{effect}",
            config.ADMINISTRATOR,
            here=first,
        )
    if policy := facts.forbidden:
        detail = "a policy forbids the next mount of this account"
        if facts.running:
            return bad(detail, FINISH)
        return bad(detail, FORBIDDEN, here=policy.line())
    if not (SYSTEM_FOLDER / "config.toml").exists():
        return None
    return good(f"{len(shared.policy)} policies of the organization apply")


def _line(pattern: str, wrong: ZonedriveError) -> str:
    """Return " (line N)" if `pattern` finds the number N in the error's message, else ""."""
    found = re.search(pattern, wrong.message)
    return marked(f" (line {found[1]})") if found else ""


def logon(facts: DoctorFacts) -> CheckResult | None:
    """Check that a logon is stored, that it is readable, and that it has not expired."""
    try:
        if facts.account is None:
            moved = not_moved(facts.paths)
            here = moved.line() if moved else ""
            return bad("there is no logon", "run 'zonedrive logon URL'", here=here)
    except NoHomeDirectory:
        return None
    except ConfigError as wrong:
        if wrong.remedy in (FAULTY, CLOSED):
            return bad("it cannot be read", wrong.remedy, here=wrong.line())
        return bad(DAMAGED, AGAIN, here=wrong.line())
    bearer = facts.bearer
    if isinstance(bearer, StoreError):
        if facts.store_error is not None and facts.secrets.kind == "keyring":
            return bad(
                "its token is in the keyring, which is locked or not available",
                "unlock the keyring: log in to the desktop, or open its settings",
            )
        if isinstance(bearer, InsecurePermissions):
            return bad(
                f"the file with its secrets {bearer.what}",
                "run 'chmod 600' on secrets.json, if it is yours;"
                " else log in with 'su -' or 'sudo -i'",
                here=bearer.line(),
            )
        return bad(DAMAGED, AGAIN, here=f"{bearer.line()}: run '{facts.logon_command}'")
    if bearer is None:
        return bad("its token is missing", AGAIN)
    if bearer.until and bearer.expires_ns < time.time_ns():
        return bad(f"the {bearer.kind} has expired, on {bearer.until}", AGAIN)
    if Account.is_damaged(facts.paths):
        return bad("account.json cannot be read, so a copy of it is in use", AGAIN)
    until = f", valid until {bearer.until}" if bearer.until else ""
    return good(f"a {bearer.kind} is stored{until}")


def profile(facts: DoctorFacts) -> CheckResult | None:
    """Check that the account's deployment profile can be loaded.

    The check also fails if a packaged profile hides a file of the same name that the administrator
    installed.
    """
    if facts.account is None:
        return None
    name = facts.settings.profile or facts.account.profile
    # The name of an installed profile often is the name of the organization.
    own = "a file of your own" if is_path(name) else "a profile of the organization"
    shown = name if name in packaged() else own
    try:
        load_profile(name)
    except ZonedriveError as wrong:
        detail = f"{shown} cannot be used{_line(r', line ([0-9]+)', wrong)}"
        remedy = "correct the file, or log on again with another --profile"
        remedy = config.unless_policy("profile", remedy)
        if is_installed(name):
            remedy = config.ADMINISTRATOR
        return bad(detail, remedy, here=wrong.line())
    if file := hidden_file(name):
        detail = f"the packaged profile {name} is in use, and not {file}"
        return bad(detail, "ask the administrator of this computer to rename the file")
    return good(shown)


def encryption(facts: DoctorFacts) -> CheckResult | None:
    """Check that the setting `encrypt` matches the local data; report whether data is encrypted."""
    if facts.account is None:
        return None
    on = bool(facts.vitals["encrypt"]) if facts.vitals else facts.settings.encrypt
    sealed = is_sealed(facts.paths)
    if sealed is not None and sealed != on:
        return bad(
            f"encrypt = {str(on).lower()}, but the local data was created with the opposite",
            "see organization" if facts.forbidden else SWITCH,
        )
    if on:
        return good("content and names are encrypted on this disk")
    return good(
        "off (encrypt = false): content and names are not encrypted on this disk",
        "to turn it on, log off, remove the setting, and log on again",
    )


def key(facts: DoctorFacts) -> CheckResult | None:
    """Check that the data key decrypts the local data; report where the secrets are stored."""
    if facts.account is None:
        return None
    where, found = WHERE[facts.secrets.kind], facts.key
    if facts.secrets.kind == "file" and is_foreign():
        where += f": {FOREIGN}, as 'su' leaves it"
    if isinstance(found, InsecurePermissions):
        return None  # `logon` reports this
    if isinstance(found, StoreError):
        remedy = "unlock the keyring" if isinstance(found, KeyringLocked) else LOST
        return bad(f"{where}, and cannot be read", remedy, here=found.line())
    remedy = RUNNING if facts.running else LOST
    if found == "gone":
        return bad("it is missing, and the local data cannot be read without it", remedy)
    if found == "another":
        return bad("it does not fit the local data", remedy)
    return good(f"not created yet; it will be {where}" if found == "to come" else where)


# ---- the service ----


def reachable(facts: DoctorFacts) -> CheckResult | None:
    """Check that the service can be reached; report its response time and the proxy in use."""
    seen = facts.probe_result
    if seen is None:
        return None
    proxy = None if facts.account is None else proxy_for(urlsplit(facts.account.base_url).netloc)
    through = f", through the proxy from {proxy.variable}" if proxy else ""
    if isinstance(seen, ProbeResult):
        return good(f"answers after {seen.seconds * 1000:.0f} ms, with a new connection{through}")
    if isinstance(seen, Untrusted):
        return good(f"a server answers{through}; see certificate")
    if isinstance(seen, ConfigError):
        return None  # `certificate` reports this
    here = seen.line()
    if isinstance(seen, ProxyFailed):
        variable = proxy.variable if proxy else "HTTPS_PROXY"
        return bad(
            f"the proxy from {variable} does not connect to it", f"check {variable}", here=here
        )
    if isinstance(seen, NoTls):
        return bad("a server answers, but not with TLS 1.2 or later", ADDRESS, here=here)
    if isinstance(seen, TimedOut):
        return bad(f"does not answer in time{through}", NETWORK)
    if isinstance(seen, Unavailable):
        return bad("reports that it is unavailable", "try again later")
    if isinstance(seen, Unreachable):
        return bad("cannot be reached", f"{NETWORK}; {KEPT}", here=here)
    return bad("does not answer like a deployment of the service", ADDRESS, here=here)


def certificate(facts: DoctorFacts) -> CheckResult | None:
    """Check that the service's certificate is trusted and does not expire within ENDING days."""
    seen = facts.probe_result
    if isinstance(seen, ConfigError):
        remedy = "run 'zonedrive logon URL' with --ca-file, or correct SSL_CERT_FILE if it is set"
        remedy = config.unless_policy("ca_file", remedy)
        return bad("the file of certificate authorities cannot be used", remedy, here=seen.line())
    if isinstance(seen, Untrusted) and seen.is_renewable:
        return bad("it has expired, or is not valid yet", RENEW, here=seen.line())
    if isinstance(seen, OtherHost):
        return bad("it is for another host", ADDRESS, here=seen.line())
    if isinstance(seen, Untrusted):
        untrusted = "this machine does not trust it"
        if remedy := config.unless_policy("ca_file", ""):
            return bad(untrusted, remedy, here=seen.line())
        return bad(
            untrusted,
            "run 'zonedrive logon URL' with --ca-file and your authority's certificate; if"
            " it was trusted before, do not continue, and ask the administrator",
            here=f"{seen.message}: run '{facts.logon_command} --ca-file PEM'; if it was trusted"
            " before, do not continue, and ask the administrator",
        )
    if not isinstance(seen, ProbeResult) or seen.certificate_days is None:
        return None
    days = f"trusted, expires in {seen.certificate_days:.0f} days"
    if seen.certificate_days < ENDING:
        return bad(days, "ask the administrator of the service to renew it")
    return good(days)


def clock(facts: DoctorFacts) -> CheckResult | None:
    """Check that the local clock differs from the service's clock by at most AHEAD seconds."""
    seen = facts.probe_result
    if not isinstance(seen, ProbeResult) or seen.ahead is None:
        return None
    if abs(seen.ahead) <= AHEAD:
        return good("agrees with the service's")
    way = "ahead of" if seen.ahead > 0 else "behind"
    detail = f"this machine's clock is {abs(seen.ahead):.0f} s {way} the service's"
    return bad(detail, "run 'timedatectl set-ntp true'")


def token(facts: DoctorFacts) -> CheckResult | None:
    """Check that the service accepts the stored token or session."""
    if facts.account is None or not isinstance(facts.probe_result, ProbeResult):
        return None
    bearer = facts.bearer
    if not isinstance(bearer, Bearer):
        return None  # `logon` and `key` report this
    try:
        trio.run(_check_bearer, facts.account, Secret(bearer.secret))
    except NotLoggedOn:
        return bad("the service does not accept it", AGAIN)
    except Forbidden as refused:
        # Omit the service's message, because it may name the user.
        answer = f"HTTP {refused.status}{' ' if refused.code else ''}{refused.code}"
        detail = f"accepted, but the service refuses to list the zones ({answer})"
        return bad(detail, refused.remedy, here=refused.line())
    except ZonedriveError as wrong:
        detail = f"could not be tested ({type(wrong).__name__})"
        here = f"{wrong.message}; {wrong.remedy or 'try again later'}"
        return bad(detail, "try again later", here=here)
    return good("accepted by the service")


async def _check_bearer(account: Account, bearer: Secret) -> None:
    async with open_access(account.base_url, account.ca_file) as access:
        access.carry(bearer)
        await access.check()
