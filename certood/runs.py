"""A run is a folder: recipe.json, weights.safetensors, log.csv, card.md, pictures, tensorboard/, and state/ while it is
unfinished. Weights are safetensors and settings JSON; nothing is unpickled without `weights_only=True`."""

import csv
import hashlib
import io
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from certood import networks
from certood.errors import CertoodError, NetworkError, RunError
from certood.files import write, write_text
from certood.recipes import Recipe

COLUMNS = (
    *("epoch", "seconds", "lr", "kappa", "eps", "loss", "loss_in", "loss_out"),
    *("accuracy", "confidence_out", "bound_out"),
)
STATE = {"step", "digests", "network", "optimiser", "sums", "seconds", "uniform_epochs", "rows"}


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

    def exists(self) -> bool:
        return (self.folder / "recipe.json").is_file()

    def finished(self) -> bool:
        return self.weights.is_file()

    def prepare(self, recipe: Recipe, resume: bool) -> bool:
        """Check that this folder can take the run; True if the run is finished already."""
        if not self.exists():
            if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
                raise RunError(f"{self.folder} exists and is no run folder; choose another --out")
            return False
        if not resume:
            if self.finished():
                raise RunError(f"{self.folder} holds a finished run; choose another --out")
            if not self.state.exists():
                raise RunError(f"{self.folder} holds a run that failed; delete it, or choose another --out")
            raise RunError(f"{self.folder} holds an unfinished run; add --resume to go on, or choose another --out")
        self.check_recipe(recipe)
        return self.finished()

    def create(self, recipe: Recipe) -> None:
        try:
            (self.folder / "state").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make the run folder {self.folder}: {error.strerror}") from None
        write_text(self.folder / "recipe.json", recipe.to_json())

    def discard_unless_resumable(self) -> None:
        """Leave nothing behind of a run that never came to a checkpoint."""
        if not (self.finished() or self.state.exists()):
            shutil.rmtree(self.folder, ignore_errors=True)

    def recipe(self) -> Recipe:
        path = self.folder / "recipe.json"
        try:
            return Recipe.from_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{self.folder} is no run folder: {path.name} cannot be read ({error})") from None
        except CertoodError as error:
            raise RunError(f"{path}: {error}") from None

    def check_recipe(self, recipe: Recipe) -> None:
        """A run is resumed with the recipe it began with."""
        before, now = asdict(self.recipe()), asdict(recipe)
        differing = [f"{key} {before[key]} -> {now[key]}" for key in before if before[key] != now[key]]
        if differing:
            raise RunError(f"{self.folder} was begun with another recipe ({', '.join(differing)}): use another --out")

    def write_state(self, state: Mapping[str, Any]) -> None:
        write(self.state, lambda beside: torch.save(dict(state), beside))

    def read_state(self, device: torch.device) -> dict[str, Any] | None:
        if not self.state.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(self.state, map_location=device, weights_only=True)
        except Exception as error:  # a broken zip, a truncated tensor, a pickle that wants to run code
            reason = str(error).splitlines()[0]
            raise RunError(f"{self.state} is corrupt ({reason}); delete {self.folder} and train again") from None
        if not isinstance(state, dict) or state.keys() != STATE:
            raise RunError(f"{self.state} is no checkpoint of this version; delete {self.folder} and train again")
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
        """The trained network in evaluation mode, its recipe and the names of its classes."""
        recipe = self.recipe()
        if not self.finished():
            raise RunError(f"{self.folder} is not finished; go on with certood train ... --out {self.folder} --resume")
        try:
            with safe_open(self.weights, framework="pt") as file:
                class_names = tuple(map(str, json.loads((file.metadata() or {})["class_names"])))
        except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
            raise RunError(f"{self.weights} cannot be read: {error}; copy the run again, or train it again") from None
        network = networks.build(recipe.network, recipe.channels, recipe.size, len(class_names))
        load_weights(network, self.weights)
        return Trained(network.eval(), recipe, class_names)


def load_weights(network: nn.Module, path: Path) -> None:
    """From a run folder or a .safetensors file, checked: the right shapes, all finite."""
    path = path / "weights.safetensors" if path.is_dir() else path
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise NetworkError(f"cannot read the weights {path}: {error}") from None
    expected = network.state_dict()
    for name in expected.keys() | tensors.keys():
        there, here = (tuple(source[name].shape) if name in source else "nothing" for source in (tensors, expected))
        if there != here:
            raise NetworkError(f"{path} does not fit the network: {name} is {there}, the network has {here}")
    broken = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if broken:
        raise NetworkError(f"{path} holds NaN or infinity in {', '.join(sorted(broken))}; train it again")
    network.load_state_dict(tensors)


def digest(weights: Mapping[str, Tensor]) -> str:
    """sha256 over names, shapes and bytes of the weights."""
    total = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.numpy().tobytes())
    return total.hexdigest()
