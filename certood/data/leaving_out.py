"""Images of a set that are left out: by a list that somebody made, or because a set of one's own holds them too."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from certood.errors import DataError

Indices = npt.NDArray[np.int64]

# Lists of indices to leave out, next to tiny_images.bin, and the number from which each counts. 80mn_cifar_idxs.txt is
# the list of Hendrycks et al. (github.com/hendrycks/outlier-exposure), whose reader subtracts 1.
LEFT_OUT = {"80mn_cifar_idxs.txt": 1, "left_out.txt": 0, "left_out.npy": 0}
LISTS = "80mn_cifar_idxs.txt (counts from 1) or left_out.txt (from 0)"


def left_out(paths: Sequence[Path], total: int) -> Indices:
    """The union of the lists, sorted, counted from 0."""
    lists: list[Indices] = [np.empty(0, np.int64)]
    for path in paths:
        try:
            content = np.load(path) if path.suffix == ".npy" else np.array(path.read_text().split(), np.int64)
        except Exception as error:
            raise DataError(f"{path}: not a list of whole numbers ({str(error)[:120]})") from None
        content = content.reshape(-1).astype(np.int64) - LEFT_OUT[path.name]
        if len(content) and (content.min() < 0 or content.max() >= total):
            raise DataError(f"{path}: lists images outside the {total} that there are; it belongs to another file")
        lists.append(content)
    return np.unique(np.concatenate(lists))


def skip(positions: Indices, gone: Indices) -> Indices:
    """The index of the k-th image that is kept, in O(log n) each and without a list of those kept.

    gone[j] - j images are kept before the j-th that is gone, so as many are skipped as have gone[j] - j <= k.
    """
    return positions + np.searchsorted(gone - np.arange(len(gone)), positions, side="right")
