"""Clock that, unlike `time.monotonic`, also counts the time in suspend."""

import time


def since_boot_ns() -> int:
    """Return the time since boot in nanoseconds, including the time in suspend."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
