"""Blocks that are free beside pages that can go back, by two choices of victims."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.allocators.pages import PageBook

PAGE_BYTES = 2 << 20
PARTS = 8 * 2  # layers, K and V: each has its own page


def full(pages: int, per_page: int) -> PageBook:
    book = PageBook(pages, per_page)
    assert book.take(pages * per_page).tolist() == list(range(pages * per_page))
    return book


def test_keeping_one_block_in_eight_keeps_every_page() -> None:
    """kvcached issue 359: 3,584 of 4,096 blocks are evicted and no memory comes back."""
    book = full(32, 128)
    book.use(np.arange(0, 4096, 8))
    victims = book.oldest(3584)
    assert not (victims % 8 == 0).any()
    assert book.drop(victims) == book.returnable == 0
    assert (book.free_blocks, book.live.tolist()) == (3584, [16] * 32)


def test_victims_by_page_give_their_memory_back() -> None:
    """The same 3,584 blocks, chosen by page: 28 of 32 pages, 0.875 GiB."""
    book = full(32, 128)
    book.use(np.arange(0, 4096, 8))
    freed = book.drop(book.emptiest(3584))
    assert (freed, book.free_blocks, book.returnable) == (28, 3584, 28)
    assert freed * PAGE_BYTES * PARTS == 0.875 * (1 << 30)


def test_kept_blocks_packed_or_one_a_page() -> None:
    """1,024 kept blocks hold 8 pages when packed, 128 when they lie one in each."""
    packed, spread = full(128, 128), full(128, 128)
    packed.drop(np.arange(1024, 128 * 128))
    spread.drop(np.setdiff1d(np.arange(128 * 128), np.arange(0, 128 * 128, 16)))
    assert (packed.free_blocks, spread.free_blocks) == (15_360, 15_360)
    assert (128 - packed.returnable, 128 - spread.returnable) == (8, 128)


def test_by_hand() -> None:
    """Pages of two: the half empty one goes first, then the one used longest ago.

    Page 0 holds block 1, page 1 blocks 2 and 3, page 2 blocks 4 and 5; 2 and 3 were used last.
    """
    book = full(3, 2)
    book.use(np.array([2, 3]))
    book.drop(np.array([0]))
    assert book.emptiest(4).tolist() == [1, 4, 5, 2]
    assert book.oldest(4).tolist() == [1, 4, 5, 2]
    book.use(np.array([1]))
    assert book.oldest(4).tolist() == [4, 5, 2, 3]
    assert book.emptiest(1).tolist() == [1]
    assert book.drop(book.emptiest(1)) == 1
    assert (book.returnable, book.free_blocks) == (1, 2)


def test_take_uses_the_lowest_free_blocks_or_says_none() -> None:
    """A book that is short hands out what it has, or hands out a live block."""
    book = full(2, 2)
    book.drop(np.array([3, 1]))
    assert book.take(3) is None
    assert book.free_blocks == 2
    assert book.take(2).tolist() == [1, 3]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda book: book.drop(np.array([0])), "drop of a free block"),
        (lambda book: book.use(np.array([0])), "use of a free block"),
        (lambda book: book.drop(np.array([1, 1])), "dropped twice"),
    ],
)
def test_misuse_is_an_assert(call, said: str) -> None:
    """A double free counts a page as returnable that is in use."""
    book = full(1, 2)
    book.drop(np.array([0]))
    with pytest.raises(AssertionError, match=said):
        call(book)


@given(st.lists(st.integers(0, 23), unique=True), st.lists(st.integers(0, 23)), st.integers(0, 24))
def test_by_page_never_gives_back_fewer_pages(
    freed: list[int], used: list[int], count: int
) -> None:
    """The choice by page loses to the choice by age, or does not evict what it was asked for."""
    found = []
    for policy in (PageBook.oldest, PageBook.emptiest):
        book = full(6, 4)
        book.drop(np.array(freed, np.int64))
        for block in set(used) - set(freed):
            book.use(np.array([block]))
        live = 24 - book.free_blocks
        victims = policy(book, count)
        assert len(set(victims.tolist())) == len(victims) == min(count, live)
        book.drop(victims)
        assert book.free_blocks == 24 - live + len(victims)
        found.append(book.returnable)
    assert found[0] <= found[1]
