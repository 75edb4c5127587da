"""How old the answers to each kind of question may be (P9). Not here: what remembers them."""

from __future__ import annotations

import time

import pytest

from fsbridge.asking import as_of, context, used
from fsbridge.config import Config
from fsbridge.errors import NotFound
from fsbridge.kernel.ages import Ages

TTL = 60.0


def make_ages(source: str = "/store", immutable: bool = False) -> Ages:
    return Ages(Config(source, "/mnt", metadata_ttl=TTL, immutable=immutable))


def accepts(answers: as_of, age: float) -> bool:
    """True if an answer that was asked for `age` seconds ago will do."""
    with answers:
        return time.monotonic() - age >= context.as_of


def test_only_the_open_of_a_local_file_accepts_no_remembered_answer() -> None:
    assert not accepts(make_ages().begin_open(), -1.0)
    assert accepts(make_ages("s3://bucket/store").begin_open(), TTL / 2)
    assert not accepts(make_ages("s3://bucket/store").begin_open(), TTL * 2)
    assert accepts(make_ages(immutable=True).begin_open(), TTL * 1000)


def test_nothing_that_was_remembered_before_a_doubt_will_do() -> None:
    ages = make_ages("s3://bucket/store")
    ages.doubt()
    assert not accepts(ages.begin_open(), TTL / 2)
    assert accepts(ages.begin_open(), -1.0)


@pytest.mark.parametrize(("source", "times"), [("/store", 2), ("s3://bucket/store", 1)])
def test_an_error_from_a_remembered_answer_of_a_local_store_is_asked_for_again(source: str, times: int) -> None:
    asked: list[float] = []

    def question() -> str:
        asked.append(context.as_of)
        used(time.monotonic() - TTL / 2)
        raise NotFound("it was not there half a minute ago")

    with pytest.raises(NotFound):
        make_ages(source).ask(question)
    assert len(asked) == times


def test_an_error_from_a_new_answer_is_not_asked_for_again() -> None:
    asked: list[str] = []

    def question() -> str:
        asked.append("")
        raise NotFound("it is not there")

    with pytest.raises(NotFound):
        make_ages().ask(question)
    assert len(asked) == 1
