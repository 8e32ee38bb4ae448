"""How fast, how large and how soon: out-sets of millions of images against one that is held in memory.

    python benchmarks/out_sets.py [--folder DIR] [--images 5000000] [--write FILE]

Three sets are made on the fly: `tiny_images.bin` with holes (its images are black, but they are read as any others),
parquet files whose row groups repeat a thousand JPEG images, and tar shards, a tenth as many, since they are indexed
record by record. Each set is read by a process of its own in the order of a training, batches of 128: memory beyond
what the process had before it opened the set, seconds to the first batch, images a second as they are read. Then the
demo's network is trained on one thread, one process reading ahead, in turns with a set that is held in memory; their
ratio is the median of the turns. Last, a batch in the middle of the second pass is asked for of a set just opened.
"""

import argparse
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

BATCH, STEPS, TRAINED, TURNS = 128, 1000, 50, 5
KINDS = ("memory", "tiny_images", "parquet", "webdataset")


def make(folder: Path, images: int) -> None:
    """Whatever of the sets is not there yet."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    random, pictures, records = np.random.default_rng(0), [], []
    for _ in range(1000):
        coarse = random.integers(0, 256, (8, 8, 3), np.uint8)
        pictures.append(np.asarray(Image.fromarray(coarse).resize((32, 32), Image.Resampling.BICUBIC)))
        with io.BytesIO() as file:
            Image.fromarray(pictures[-1]).save(file, "JPEG", quality=90)
            records.append(file.getvalue())
    for kind in KINDS:
        (folder / kind).mkdir(parents=True, exist_ok=True)
    np.savez(folder / "memory" / "train.npz", images=np.stack(pictures * 50))
    tiny = folder / "tiny_images" / "tiny_images.bin"
    with tiny.open("wb") as file:
        file.truncate(3072 * images)  # a hole: takes no space
    tiny.with_name("left_out.txt").write_text("")
    table = pa.table({"image": [{"bytes": record, "path": None} for record in records]})
    shards = 50
    for number in range(shards):
        path = folder / "parquet" / f"train-{number:05d}-of-{shards:05d}.parquet"
        if not path.exists():
            with pq.ParquetWriter(path, table.schema, compression="none", use_dictionary=False) as writer:
                for _ in range(images // shards // 1000):
                    writer.write_table(table)
    for number in range(10):
        path = folder / "webdataset" / f"train-{number:05d}.tar"
        if not path.exists():
            with tarfile.open(path, "w") as archive:
                for at in range(images // 100):
                    member = tarfile.TarInfo(f"{at:07d}.jpg")
                    member.size = len(records[at % 1000])
                    archive.addfile(member, io.BytesIO(records[at % 1000]))


def resident() -> float:
    """Megabytes now, of this process alone."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def measure(kind: str, folder: Path) -> dict[str, float]:
    import torch

    from certood.data import adapting, shards
    from certood.data.sources import load
    from certood.data.stream import Batches

    torch.set_num_threads(1)
    shards.LARGE = adapting.DECODED_AT_ONCE = 0  # stream, whatever the size
    inside = load("demo_digits", "train", folder=None, channels=1, size=28)
    before, began = resident(), time.monotonic()
    out_set = load(kind, "train", folder=folder, channels=1, size=28, margin=4, to_train_against=True)
    batches = Batches(inside, out_set, BATCH, 0)
    batches[0]
    first = time.monotonic() - began
    began, most = time.monotonic(), resident()
    for step in range(1, STEPS):
        batches[step]
        most = max(most, resident())
    read = (STEPS - 1) * BATCH / (time.monotonic() - began)
    found = {"images": len(out_set), "memory": most - before, "first": first, "read": read}
    held = load("memory", "train", folder=folder, channels=1, size=28, margin=4, to_train_against=True)
    turns = [(trained(batches), trained(Batches(inside, held, BATCH, 0))) for _ in range(TURNS)]
    own, ratio = (float(np.median(each)) for each in zip(*((one, one / other) for one, other in turns), strict=True))
    return found | {"trained": own, "ratio": ratio, "again": resumed(kind, folder, batches)}


def trained(batches: Any) -> float:
    """Images a second of whole GOOD steps, a process reading ahead."""
    import torch
    from torch.utils.data import DataLoader

    from certood import networks
    from certood.bounds import Box, max_gap
    from certood.data.augment import Augmentation
    from certood.data.stream import generator

    network = networks.build("XS", 1, 28, 10)
    optimiser = torch.optim.Adam(network.parameters())
    augment = Augmentation(28, 4)
    loader = DataLoader(batches, batch_size=None, sampler=range(TRAINED), num_workers=1)
    began = 0.0
    for step, images, labels, out_images, _ in loader:
        if step == 5:
            began = time.monotonic()
        x = augment(images, generator(0, "in", step))
        x_out = augment(out_images, generator(0, "out", step))
        loss = torch.nn.functional.cross_entropy(network(x), labels)
        loss = loss + torch.log1p(max_gap(network, Box.around(x_out, 0.1, cut=False)).square() / 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return (TRAINED - 5) * BATCH / (time.monotonic() - began)


def resumed(kind: str, folder: Path, batches: Any) -> float:
    """Seconds to a batch in the middle of the second pass, in a set that was opened anew; it must be the same batch."""
    from certood.data.sources import load
    from certood.data.stream import Batches

    step = int(1.5 * len(batches.out_set)) // BATCH
    expected = batches[step].out_images
    began = time.monotonic()
    again = load(kind, "train", folder=folder, channels=1, size=28, margin=4, to_train_against=True)
    found = Batches(batches.in_set, again, BATCH, 0)[step].out_images
    took = time.monotonic() - began
    if not bool((found == expected).all()):
        raise SystemExit(f"{kind}: step {step} gives other images when it is asked for first")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "certood-out-sets")
    parser.add_argument("--images", type=int, default=5_000_000)
    parser.add_argument("--sets", default=",".join(KINDS), help="which of them, with commas")
    parser.add_argument("--write", type=Path, help="put the table into this file")
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help="leave the sets where they are")
    options = parser.parse_args()
    if options.kind:
        print(json.dumps(measure(options.kind, options.folder)))
        return
    make(options.folder, options.images)
    found = {}
    environment = os.environ | {"HF_HOME": str(options.folder / "copies")}  # no index of an earlier run
    for kind in options.sets.split(","):
        words = [sys.executable, __file__, "--folder", str(options.folder), "--kind", kind]
        for attempt in ("", " again") if kind == "webdataset" else ("",):  # the second time with its index
            run = subprocess.run(words, stdout=subprocess.PIPE, check=True, env=environment)
            found[kind + attempt] = json.loads(run.stdout)
            print(kind + attempt, found[kind + attempt], file=sys.stderr)
    lines = [
        "| set | images | MB beyond | first batch | images/s read | in training | of memory's | resume |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind, numbers in found.items():
        lines.append(
            f"| {kind} | {numbers['images']:,} | {numbers['memory']:.0f} | {numbers['first']:.2f} s "
            f"| {numbers['read']:,.0f} | {numbers['trained']:,.0f} | {numbers['ratio']:.2f} "
            f"| {numbers['again']:.2f} s |"
        )
    print("\n".join(lines))
    if options.write:
        options.write.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if not options.keep:
        shutil.rmtree(options.folder)


if __name__ == "__main__":
    main()
