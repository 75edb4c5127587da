"""How old answers may be, and how it is told how old they were."""

from __future__ import annotations

import math
import threading
import time

from fsbridge.asking import SlowListing, anew, as_listed, as_of, carried, context, from_now, oldest, used
from fsbridge.threads.parallel import each


def test_outside_of_a_question_nothing_remembered_will_do() -> None:
    assert (context.as_of, context.listed) == (math.inf, math.inf)
    listing = SlowListing[str]()
    listing.made = "made"
    assert not listing.will_do()


def test_contexts_nest_and_pass_the_oldest_answer_outwards() -> None:
    with as_of(5.0, 3.0) as outer:
        used(8.0)
        with as_of(1.0) as inner:
            assert (context.as_of, context.listed) == (1.0, 1.0)
            used(2.0)
        assert (context.as_of, context.listed, inner.oldest, oldest()) == (5.0, 3.0, 2.0, 2.0)
        with as_of(1.0) as other:
            pass
        assert other.oldest > 2.0
    assert outer.oldest == 2.0
    assert (context.as_of, context.listed) == (math.inf, math.inf)


def test_without_any_remembered_answer_the_oldest_is_the_beginning() -> None:
    before = time.monotonic()
    with as_of(0.0):
        assert before <= oldest() <= time.monotonic()


def test_a_slow_listing_will_do_as_long_as_listings_may_be_old_and_counts_as_used() -> None:
    with as_of(5.0):
        used(4.0)
        listing = SlowListing[str]()
        assert not listing.will_do()
        listing.made = "made"
    with as_of(10.0, 4.0) as answers:
        assert listing.will_do()
    assert answers.oldest == 4.0
    with as_of(4.0, 4.5) as answers:
        assert not listing.will_do()
    assert answers.oldest > 4.5


def test_a_question_may_take_all_answers_as_old_as_listings_or_none_that_is_remembered() -> None:
    with as_of(5.0, 3.0):
        with as_listed():
            assert (context.as_of, context.listed) == (3.0, 3.0)
        with anew():
            assert (context.as_of, context.listed) == (math.inf, math.inf)
    with as_listed():
        assert (context.as_of, context.listed) == (math.inf, math.inf)


def test_parallel_calls_have_their_caller_s_context_and_pass_back_the_oldest_answer() -> None:
    def look(number: int) -> float:
        used(10.0 + number)
        return context.as_of

    with as_of(5.0) as answers:
        assert each(look, range(4), 2) == [5.0] * 4
        assert answers.oldest == math.inf
    assert answers.oldest == 10.0
    assert each(look, range(4), 2) == [math.inf] * 4


def test_another_thread_is_asked_as_its_caller_is() -> None:
    found: list[tuple[float, float]] = []

    def look() -> None:
        found.append((context.as_of, context.listed))

    with as_of(5.0, 3.0):
        calls = [carried(look), look]
    for call in [*calls, carried(look)]:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert found == [(5.0, 3.0), (math.inf, math.inf), (math.inf, math.inf)]


def test_a_question_made_of_many_has_one_age_limit() -> None:
    with from_now():
        moment = context.as_of
        assert moment == context.listed <= time.monotonic()
        with from_now():
            assert context.as_of == moment
    with as_of(5.0, 3.0), from_now():
        assert (context.as_of, context.listed) == (5.0, 3.0)


def test_an_answer_that_is_used_where_no_age_is_asked_for_ages_nothing_that_comes_later() -> None:
    used(2.0)
    assert oldest() > 2.0
