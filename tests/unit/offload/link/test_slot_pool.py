"""Slot memory."""

import torch

from offload.geometry import PAGE_BYTES, page_aligned_bytes, pool_bytes
from offload.link.slot_pool import SlotPool
from offload.page_memory import address_of


def test_groups_number_their_slots_one_after_the_other():
    pool = SlotPool((2, 0, 3), (100, 50, 5000))
    assert pool.num_slots == 5
    assert pool.num_groups == 3
    assert [list(pool.slots_of(group)) for group in range(3)] == [[0, 1], [], [2, 3, 4]]


def test_every_slot_starts_on_a_page_and_is_as_long_as_asked():
    pool = SlotPool((3, 2), (100, 5000))
    assert all(address_of(pool.memory(slot)) % PAGE_BYTES == 0 for slot in range(5))
    assert [len(pool.memory(slot)) for slot in range(5)] == [100] * 3 + [5000] * 2


def test_slots_do_not_overlap():
    pool = SlotPool((2, 2), (4096, 10))
    for slot in range(4):
        pool.memory(slot)[:] = bytes([slot + 1]) * len(pool.memory(slot))
    assert all(set(pool.memory(slot)) == {slot + 1} for slot in range(4))


def test_a_view_outlives_the_pool():
    pool = SlotPool((1,), (64,))
    pool.memory(0)[:] = bytes([9]) * 64
    view = torch.frombuffer(pool.memory(0), dtype=torch.bfloat16)
    del pool
    assert view.view(torch.uint8).tolist() == [9] * 64


def test_planned_and_allocated_bytes_agree():
    assert SlotPool((3, 2), (100, 5000)).total_bytes == pool_bytes((3, 2), (100, 5000)) == 8 * PAGE_BYTES
    assert SlotPool((), ()).total_bytes == pool_bytes((), ()) == 0
    assert [page_aligned_bytes(n) for n in (0, 1, 4096, 4097)] == [0, 4096, 4096, 8192]
