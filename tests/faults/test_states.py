"""Stores that change between any two steps of their readers: what is read is of one version that was there, or an error.

What may be seen of which step is in `state_machine.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from changing_files import ChangingFiles
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from state_machine import FILL, NAMES, Changing, Reader
from surrounded_machine import FORMS, Surrounded

MACHINE = settings(max_examples=10, stateful_step_count=40, derandomize=True, deadline=None)


@pytest.mark.parametrize(
    ("form", "read_ahead"), [("zarr3", True), ("zarr3", False), ("sharded", True), ("zarr2", True), ("n5", True)]
)
def test_p9_every_read_is_of_one_version_that_was_there(form: str, read_ahead: bool) -> None:
    machine = type(f"Changing_{form}", (Changing,), {"form": form, "read_ahead": read_ahead})
    run_state_machine_as_test(machine, settings=MACHINE)


def test_p9_the_second_open_is_not_the_first_to_see_a_change() -> None:
    """The kernel looks a stale path up only once more: both its document and a chunk that was read have changed."""
    machine = Changing()
    try:
        machine.open_whole("a")
        machine.redescribe(0, "rename")
        machine.read_other("a", ".csv")
        machine.read_around_a_change(0, (0, 0), "rename", False)
        machine.open_whole("a")
    finally:
        machine.teardown()


class ChangingFile(Changing):
    """Stores that are files."""

    store: ChangingFiles

    def make_store(self, folder: Path) -> ChangingFiles:
        return ChangingFiles(folder, self.form)

    def place(self, name: str) -> tuple[str, ...]:
        return (f"{name}.h5", "x") if self.form == "hdf5s" else (name,)

    @rule(name=st.sampled_from(NAMES), how=st.sampled_from(["cut", "gone", "other"]))
    def spoil(self, name: str, how: str) -> None:
        self.store.spoil(name, how)

    @rule(name=st.sampled_from(NAMES))
    def mend(self, name: str) -> None:
        self.store.mend(name)

    def excused(self, name: str, error: str, since: float) -> bool:
        states = self.store.histories.within(self.store.file(name), since)
        spoilt = [state for state in states if isinstance(state, str)]
        if self.form != "hdf5s" and error == "ENOENT":
            return "other" in spoilt
        return bool(spoilt) and error in ("", "EIO", "ESTALE", "ENOENT", "ENOTDIR", "EISDIR")

    def check_together(self, reader: Reader) -> None:
        """Read one version of the file, all of which changes at once."""
        versions = self.store.histories.within(self.store.file(reader.name), reader.since)
        held = [version.get(reader.name) for version in versions if isinstance(version, dict)]
        stamps = [stored.stamps for stored in held if stored is not None and stored.shape is not None]
        seen = {(key[2], key[3]): stamp for key, stamp in reader.seen.items()}
        assert any(all(s.get(at, FILL) == stamp for at, stamp in seen.items()) for s in stamps), (
            f"{reader}: {seen} of {stamps}"
        )

    def _changed(self, name: str, since: float) -> bool:
        return len(self.store.histories.within(self.store.file(name), since)) > 1


@pytest.mark.parametrize("form", ["hdf5", "hdf5s", "zip"])
def test_p9_every_read_of_a_file_is_of_one_version_that_was_there(form: str) -> None:
    run_state_machine_as_test(type(f"Changing_{form}", (ChangingFile,), {"form": form}), settings=MACHINE)


@pytest.mark.parametrize("form", FORMS)
def test_p9_every_file_is_what_a_fresh_tree_shows(form: str) -> None:
    """Groups, coordinates, owners and modes change; what may be seen is in `surrounded_machine.py`."""
    few = settings(MACHINE, max_examples=4)  # an example reads some hundred files twice
    run_state_machine_as_test(type(f"Surrounded_{form}", (Surrounded,), {"form": form}), settings=few)
