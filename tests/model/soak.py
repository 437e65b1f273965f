"""Operations and faults, compared with a dict, for any time, on a separate deployment.

    python -m tests.model.soak --minutes 10

Prints every sequence whose result differs from the dict's, and continues.
"""

import argparse
import shutil
import tempfile
import time
import traceback
from pathlib import Path

from tests.crash.mounts import mortal
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine
from tests.model.steps import Steps, run
from tests.model.trouble import ALLOWED, TroubledSteps

REFRESH = ("refresh=0", "refresh=1", "refresh=3")


def main() -> None:
    """Run the long test; exit code 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="zdms"))
    deployment, account = Deployment(folder), Machine(folder / "account")
    end, sequences, found = time.monotonic() + 60 * given.minutes, 0, 0
    try:
        account.log_on(deployment, profile="sandbox")
        zone = deployment.fresh_zone()
        while time.monotonic() < end:
            options = "settle=0.2", REFRESH[sequences // 4 % len(REFRESH)]
            with mortal(account, deployment, zone, options) as mount:
                mount.allow(*ALLOWED)
                mount.mount()
                try:
                    run(TroubledSteps, mount, examples=4, steps=40)
                    assert not mount.complaints(), mount.complaints()
                except Exception:
                    found += 1
                    print(traceback.format_exc(), mount.log()[-6000:], mount.status(), sep="\n")
                finally:
                    deployment.heal()
            sequences += 4
            print(f"{sequences} sequences, {Steps.done.total()} operations, {found} found")
    finally:
        deployment.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(dict(Steps.done))
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
