"""MATLAB files are read as scipy reads them, and damaged ones are refused."""

from pathlib import Path

import numpy as np
import pytest
import scipy.io
from hypothesis import given
from hypothesis import strategies as st

from certood.data.matlab import arrays

CONTENT = {
    "X": np.random.default_rng(0).integers(0, 256, (4, 3, 2, 5), np.uint8),
    "y": np.array([[1.0], [10.0], [3.0]]),
    "small": np.array([[1, 2]], np.uint8),
    **{
        kind: np.arange(-3, 9, dtype=np.int16).reshape(3, 4).astype(kind)
        for kind in ("int8", "int64", "float32", "uint32")
    },
}


@pytest.mark.parametrize("compressed", [False, True])
def test_what_scipy_writes(compressed: bool, tmp_path: Path) -> None:
    other = {"words": "text", "cell": np.array([1, "a"], dtype=object), "complex": np.array([1j])}
    scipy.io.savemat(tmp_path / "a.mat", CONTENT | other, do_compression=compressed)
    found = arrays(tmp_path / "a.mat")
    theirs = scipy.io.loadmat(tmp_path / "a.mat")
    assert set(found) == set(CONTENT)
    for name, array in found.items():
        assert array.dtype == theirs[name].dtype
        assert np.array_equal(array, theirs[name])


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("mat") / "a.mat"
    scipy.io.savemat(path, {"X": np.zeros((2**20, 4), np.uint8)}, do_compression=True)
    return path.read_bytes()


def test_a_bomb_is_not_unpacked(packed: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.mat").write_bytes(packed)
    with pytest.raises(ValueError, match="more than 100 times larger than its file"):
        arrays(tmp_path / "a.mat")


@pytest.mark.parametrize("data", [b"", b"MATLAB 5.0", b"\0" * 200, b"\x89HDF\r\n\x1a\n" + b"\0" * 200])
def test_other_files(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.mat").write_bytes(data)
    with pytest.raises(ValueError, match="no MATLAB file of version 5"):
        arrays(tmp_path / "a.mat")


@given(data=st.data())
def test_a_file_cut_anywhere(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.mat"
    scipy.io.savemat(path, CONTENT)
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    try:
        found = arrays(path)
    except ValueError:
        return
    for name, array in found.items():  # cut between two of them
        assert np.array_equal(array, CONTENT[name])
