"""The order of requests alone tells readers of rows of planes through `mmap` from all others."""

from __future__ import annotations

from fsbridge.kernel.pages import Scattered

MIB, PAGE = 1 << 20, 4096


def around(scattered: Scattered, page: int) -> list[bool]:
    """A page fault: what is around it is asked for, and if that fails the page itself."""
    start = max(0, page - MIB // 2)
    declined = scattered.declines(start, start + MIB)
    return [declined, scattered.declines(page, page + PAGE)] if declined else [declined]


def test_a_row_of_each_plane_is_read_page_by_page() -> None:
    scattered = Scattered()
    found = [around(scattered, 10 * MIB + plane * 2 * MIB) for plane in range(20)]
    assert found == [[False]] * 2 + [[True, False]] * 18


def test_from_front_to_back_nothing_is_declined() -> None:
    scattered = Scattered()
    assert not any(scattered.declines(n * MIB, (n + 1) * MIB) for n in range(100))
    scattered = Scattered()
    order = [n ^ 1 for n in range(100)]
    assert not any(scattered.declines(n * MIB, (n + 1) * MIB) for n in order), "requests overtake each other"


def test_scattered_calls_of_read_are_declined_once() -> None:
    scattered = Scattered()
    declined = 0
    for n in range(50):
        start = n * 10 * MIB
        if scattered.declines(start, start + MIB):
            declined += 1
            assert not any(scattered.declines(page, page + PAGE) for page in range(start, start + MIB, PAGE))
    assert declined == 1


def test_two_readers_of_one_descriptor_are_declined_once() -> None:
    scattered = Scattered()
    declined = [start for n in range(50) for start in (n * MIB, (500 + n) * MIB) if scattered.declines(start, start + MIB)]
    assert not scattered.declines(declined[-1], declined[-1] + PAGE)
    assert not any(scattered.declines(start, start + MIB) for n in range(50, 99) for start in (n * MIB, (500 + n) * MIB))


def test_a_reader_that_becomes_sequential_gets_long_requests_again() -> None:
    scattered = Scattered()
    for plane in range(20):
        around(scattered, 10 * MIB + plane * 2 * MIB)
    begin = 100 * MIB
    found = [around(scattered, begin + n * PAGE) for n in range(30)]
    assert found[0] == [True, False]
    assert found[17:] == [[False]] * 13


def test_short_requests_are_never_declined() -> None:
    scattered = Scattered()
    assert not any(scattered.declines(n * MIB, n * MIB + PAGE) for n in range(100))


def test_p2_a_declined_request_is_answered_when_it_comes_again() -> None:
    """A kernel with large folios asks for more than a page at a time; a second failure would be its caller's."""
    for begin, end in ((0, MIB), (0, 64 * 1024), (512 * 1024, 640 * 1024), (MIB - 64 * 1024, MIB)):
        scattered = Scattered()
        start = next(start for start in range(10 * MIB, 1000 * MIB, 10 * MIB) if scattered.declines(start, start + MIB))
        assert not scattered.declines(start + begin, start + end)
