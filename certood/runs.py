"""A run is a folder: recipe.json, weights.safetensors, log.csv, card.md, pictures, tensorboard/, and state/ while it is
unfinished. Weights are safetensors and settings JSON; nothing is unpickled without `weights_only=True`."""

import csv
import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from certood import locks
from certood.building import network_of, settled
from certood.contents import check
from certood.errors import CertoodError, NetworkError, RunError
from certood.files import parse_json, read_text, write, write_text
from certood.locks import locked
from certood.recipes import Recipe

COLUMNS = (
    *("epoch", "seconds", "lr", "kappa", "eps", "loss", "loss_in", "loss_out"),
    *("accuracy", "confidence_out", "bound_out"),
)
STATE = {
    **{"step": int, "digests": [str], "network": dict, "optimiser": dict, "sums": Tensor, "seconds": float},
    **{"uniform_epochs": int, "rows": [dict]},
}


STORED = {torch.float32: "F32", torch.int64: "I64"}  # whole numbers: how many batches a batch norm has seen


class Trained(NamedTuple):
    network: nn.Module
    recipe: Recipe
    class_names: tuple[str, ...]


@final
@dataclass(frozen=True)
class Run:
    folder: Path

    @property
    def weights(self) -> Path:
        return self.folder / "weights.safetensors"

    @property
    def state(self) -> Path:
        return self.folder / "state" / "last.pt"

    @property
    def first(self) -> "Run":
        """What was trained first, where a recipe asks for two trainings."""
        return Run(self.folder / "discriminator")

    def exists(self) -> bool:
        return (self.folder / "recipe.json").is_file()

    def finished(self) -> bool:
        return self.weights.is_file()

    def prepare(self, recipe: Recipe, resume: bool) -> bool:
        """Check that this folder can take the run; True if the run is finished already."""
        if not self.exists():
            if self.folder.exists() and (not self.folder.is_dir() or any(map(_foreign, self.folder.iterdir()))):
                raise RunError(f"{self.folder} exists and is no run folder; choose another --out")
            return False
        if not resume:
            if self.finished():
                raise RunError(f"{self.folder} holds a finished run; choose another --out")
            if not self.resumable():
                raise RunError(f"{self.folder} holds a run that failed; delete it, or choose another --out")
            raise RunError(f"{self.folder} holds an unfinished run; add --resume to go on, or choose another --out")
        self.check_recipe(recipe)
        return self.finished()

    def create(self, recipe: Recipe) -> None:
        """The recipe comes first: a folder that has it is a run, however early it was killed."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self.folder / "recipe.json", recipe.to_json())
            (self.folder / "state").mkdir(exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make the run folder {self.folder}: {error.strerror}") from None

    def resumable(self) -> bool:
        return self.state.exists() or (self.first.exists() and (self.first.finished() or self.first.resumable()))

    def discard_unless_resumable(self) -> None:
        """Leave nothing behind of a run that never came to a checkpoint."""
        if not (self.finished() or self.resumable()):
            shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def held(self, recipe: Recipe, resume: bool) -> Iterator[bool]:
        """Keep other processes away, then look again what is there; True if the run is finished already."""
        with locked(self.folder, "training"):
            for left in (*self.folder.glob(".*.part"), *self.state.parent.glob(".*.part")):
                left.unlink(missing_ok=True)  # of a write that was killed
            yield self.prepare(recipe, resume)

    def recipe(self) -> Recipe:
        path = self.folder / "recipe.json"
        try:
            return Recipe.from_json(read_text(path))
        except CertoodError as error:
            raise RunError(f"{path}: {error}") from None
        except (OSError, ValueError) as error:
            raise RunError(f"{self.folder} is no run folder: {path.name} cannot be read ({error})") from None

    def check_recipe(self, recipe: Recipe) -> None:
        """A run is resumed with the recipe it began with; what it started from may have moved with it."""
        before, now = asdict(self.recipe()), asdict(recipe)
        before["start_from"], now["start_from"] = Path(before["start_from"]).name, Path(now["start_from"]).name
        differing = [f"{key} {before[key]} -> {now[key]}" for key in before if before[key] != now[key]]
        if differing:
            raise RunError(f"{self.folder} was begun with another recipe ({', '.join(differing)}): use another --out")

    def write_state(self, state: Mapping[str, Any]) -> None:
        write(self.state, lambda beside: torch.save(dict(state), beside))

    def read_state(self, device: torch.device) -> dict[str, Any] | None:
        if not self.state.exists():
            return None
        try:
            _stored_plainly(self.state)
            state: dict[str, Any] = torch.load(self.state, map_location=device, weights_only=True)
            check(state, STATE)
        except Exception as error:  # a broken zip, a truncated tensor, a pickle that wants to run code
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise RunError(f"{self.state} is corrupt ({reason}); delete {self.folder} and train again") from None
        return state

    def write_log(self, rows: Sequence[Mapping[str, float]]) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{row[key]:.6g}" if row[key] == row[key] else "" for key in COLUMNS})
        write_text(self.folder / "log.csv", text.getvalue())

    def finish(self, weights: Mapping[str, Tensor], class_names: Sequence[str], card: str) -> None:
        """Weights come last: a folder that has them is a finished run."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        metadata = {"class_names": json.dumps(list(class_names)), "format": "pt"}
        write_text(self.folder / "card.md", card)
        write(self.weights, lambda beside: save_file(tensors, beside, metadata))
        shutil.rmtree(self.folder / "state", ignore_errors=True)

    def load(self) -> Trained:
        """The trained network in evaluation mode, batch norm folded, its recipe and the names of its classes."""
        recipe = self.recipe()
        if not self.finished():
            raise RunError(f"{self.folder} is not finished; go on with certood train ... --out {self.folder} --resume")
        class_names = _class_names(self.weights)
        try:
            with torch.device("meta"):  # takes no memory, however large the recipe says that the network is
                network = network_of(recipe, len(class_names))
        except (RuntimeError, TypeError, OverflowError) as error:
            reason = str(error).splitlines()[0]
            raise RunError(f"{self.folder / 'recipe.json'} asks for no possible network ({reason})") from None
        load_weights(network, self.weights)
        return Trained(settled(network.eval()).eval(), recipe, class_names)


def load_weights(network: nn.Module, path: Path) -> None:
    """From a run folder or a .safetensors file, checked: the right shapes before anything is read, then all finite.

    A network on the device "meta" takes the tensors of the file for its own.
    """
    path = path / "weights.safetensors" if path.is_dir() else path
    expected = network.state_dict()
    try:
        if not path.is_file():
            raise OSError("there is no such file")
        with safe_open(path, framework="pt") as file:
            found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # it is no mapping
            there = {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in found.items()}
            here = {name: (tuple(tensor.shape), STORED[tensor.dtype]) for name, tensor in expected.items()}
            for name in sorted(here.keys() | there.keys()):
                if there.get(name) != here.get(name):
                    one, other = (_described(source.get(name)) for source in (there, here))
                    raise NetworkError(f"{path} does not fit the network: {name} is {one}, the network has {other}")
            tensors = {name: file.get_tensor(name) for name in here}
    except (SafetensorError, OSError) as error:
        raise NetworkError(f"cannot read the weights {path}: {error}") from None
    broken = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if broken:
        raise NetworkError(f"{path} holds NaN or infinity in {', '.join(sorted(broken))}; train it again")
    network.load_state_dict(tensors, assign=any(tensor.is_meta for tensor in expected.values()))


def _described(form: tuple[tuple[int, ...], str] | None) -> str:
    return "nothing" if form is None else f"{form[0]}" if form[1] == "F32" else f"{form[0]} of {form[1]}"


def _class_names(path: Path) -> tuple[str, ...]:
    try:
        with safe_open(path, framework="pt") as file:
            names = parse_json((file.metadata() or {}).get("class_names", "null"))
        check(names, [str], "class_names")
    except (SafetensorError, OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}") from None
    return tuple(names)


def _foreign(path: Path) -> bool:
    """Not one of those that a process leaves that was killed before it began."""
    return path.name != locks.NAME and path.suffix != ".part"


def _stored_plainly(path: Path) -> None:
    """Refuse an archive that would be larger in memory than it is on the disk."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ValueError("it is compressed, which no checkpoint is")
    if sum(member.file_size for member in members) > path.stat().st_size:
        raise ValueError("its parts are larger than the file")


def digest(weights: Mapping[str, Tensor]) -> str:
    """sha256 over names, shapes and bytes of the weights."""
    total = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.numpy().tobytes())
    return total.hexdigest()
