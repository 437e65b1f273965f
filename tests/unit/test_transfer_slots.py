"""Fast transfers take turns, with short waits."""

import threading

import pytest

from zonedrive import transfer_slots
from zonedrive.transfer_slots import QUANTUM, TransferSlot, TransferSlots


class Clock:
    """Clock that a test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the timeout."""
    monkeypatch.setattr(transfer_slots, "PATIENCE_S", 60.0)


@pytest.mark.usefixtures("patient")
def test_fast_transfers_work_one_after_the_other() -> None:
    """Four transfers progress equally; between two turns of one, each other has at most one."""
    shared, order = TransferSlots(), list[int]()
    assert shared.take()

    def transfer(number: int) -> None:
        turn = TransferSlot(shared, Clock())
        for _ in range(3):
            turn.advance(QUANTUM)
            assert shared.is_taken
            order.append(number)
        turn.end()

    threads = [threading.Thread(target=transfer, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while len(shared.waiting) < 4:
        threading.Event().wait(0.001)
    shared.pass_on()
    for thread in threads:
        thread.join(30)
    assert not shared.is_taken
    assert sorted(order) == [number for number in range(4) for _ in range(3)]
    assert sorted(order[:4]) == sorted(order[4:8]) == [0, 1, 2, 3]


def test_a_stuck_transfer_does_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transfer with the turn may wait for the network: after a moment the others continue."""
    monkeypatch.setattr(transfer_slots, "PATIENCE_S", 0.001)
    shared = TransferSlots()
    assert shared.take()
    for _ in range(3):
        assert not shared.take()
    assert not shared.waiting
    shared.pass_on()
    assert shared.take()


def test_slow_transfers_take_no_turns() -> None:
    """A connection of 10 MB/s does not load the machine, and needs no turns."""
    shared, clock = TransferSlots(), Clock()
    turn = TransferSlot(shared, clock)
    for _ in range(96):
        clock.now += QUANTUM / 8 / 10e6
        turn.advance(QUANTUM // 8)
        assert not shared.is_taken
    turn.advance(QUANTUM)
    assert shared.is_taken
    clock.now += 1.0
    turn.advance(QUANTUM)
    assert not shared.is_taken
