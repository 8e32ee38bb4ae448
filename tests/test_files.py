"""A file is old or new, never half."""

from pathlib import Path

import pytest

from certood.errors import RunError
from certood.files import write, write_text


def test_what_fails_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")

    def fail(beside: Path) -> None:
        beside.write_text("ha")
        raise OSError(28, "No space left on device")

    with pytest.raises(RunError, match="disk is full"):
        write(tmp_path / "a.txt", fail)
    assert (tmp_path / "a.txt").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot write .*a\.txt: No such file"):
        write_text(tmp_path / "no" / "a.txt", "text")
