"""`certood calibrate` and `certood certify`, as they are typed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from certood.cli import main
from certood.data.sources import load as load_set


@pytest.fixture
def run(runs: Path, tmp_path: Path) -> Path:
    copy = Path(shutil.copytree(runs / "good", tmp_path / "good"))
    (copy / "calibration.json").unlink(missing_ok=True)
    return copy


@pytest.fixture
def pictures(tmp_path: Path) -> list[str]:
    paths = []
    for name in ("demo_digits", "demo_photos"):
        pixels = load_set(name, "test", folder=None, channels=1, size=28).images(np.arange(2))
        for index, image in enumerate(pixels):
            paths.append(str(tmp_path / f"{name}{index}.png"))
            Image.fromarray(image[0]).save(paths[-1])
    return paths


def failing(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    said = capsys.readouterr()
    assert (stop.value.code, said.out) == (2, "")
    assert len(said.err.strip().splitlines()) == 1
    return said.err


def test_calibrate_then_certify(run: Path, pictures: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["certify", str(run), *pictures, "--json"])
    before = json.loads(capsys.readouterr().out)
    assert before["threshold"] is None
    assert [row["accepted"] for row in before["images"]] == [None] * 4

    main(["calibrate", str(run), "--accept", "0.9", "--limit", "200", "--json"])
    calibration = json.loads(capsys.readouterr().out)
    assert calibration["images"] == 200
    assert "with 99 % confidence at least" in calibration["statement"]

    main(["certify", str(run), *pictures, "--eps", "0.001", "--radius", "--json"])
    after = json.loads(capsys.readouterr().out)
    assert after["calibration"] == calibration["statement"]
    assert [row["image"] for row in after["images"]] == pictures
    for row in after["images"]:
        assert row["confidence_at_least"] <= row["confidence_at_most"]
        assert row["accepted"] == (row["confidence"] >= after["threshold"])
        assert not (row["accepted_for_sure"] and row["rejected_for_sure"])
        assert (row["radius"] > 0.001) <= row["rejected_for_sure"]

    main(["certify", str(run), *pictures, "--radius"])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "accepts a confidence of" in " ".join(shown.split())
    assert all(Path(picture).name in shown for picture in pictures)

    main(["calibrate", str(run), "--limit", "100"])  # a second time replaces the first
    assert "the 100 calibration images" in " ".join(capsys.readouterr().out.split())


def test_a_certificate_that_others_check(run: Path, pictures: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["calibrate", str(run), "--accept", "0.9", "--limit", "200"])
    file = run.parent / "seven.json"
    main(["certify", str(run), pictures[2], "--eps", "0.001", "--certificate", str(file)])
    told = capsys.readouterr().out
    command = next(line.split() for line in told.splitlines() if line.startswith("  certood verify"))
    main(command[1:])
    assert "The certificate holds" in capsys.readouterr().out
    main([*command[1:], "--json"])
    content = json.loads(capsys.readouterr().out)
    assert (content["holds"], content["eps"]) == (True, 0.001)
    main(["certify", str(run), pictures[2], "--eps", "0.001", "--json"])
    answer = json.loads(capsys.readouterr().out)
    row = answer["images"][0]
    assert content["threshold"] == answer["threshold_log_odds"]
    assert content["confidence_upper"] == pytest.approx(row["confidence_at_most"], rel=1e-3)
    assert ("All of them are rejected" in content["statement"]) == row["rejected_for_sure"]

    weights = run / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\7")
    assert "changed since it was written: the weights" in failing(command[1:], capsys)
    two = ["certify", str(run), *pictures[:2], "--certificate", str(file)]
    assert "a certificate is for one image, not for 2" in failing(two, capsys)


def test_certify_without_a_calibration(run: Path, pictures: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["certify", str(run), pictures[0]])
    assert "has no threshold yet: certood calibrate" in " ".join(capsys.readouterr().out.split())


def test_mistakes(run: Path, pictures: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    large = str(tmp_path / "large.png")
    Image.new("L", (100, 80)).save(large)
    for arguments, told in (
        (["certify", str(tmp_path / "nowhere"), pictures[0]], "is no run folder"),
        (["certify", str(run)], "name the image files"),
        (["certify", str(run), "nowhere.png"], "nowhere.png is not there"),
        (["certify", str(run), large], "100x80 pixels, the network takes 28x28"),
        (["certify", str(run), pictures[0], "--eps", "8"], "divide 8-bit steps by 255"),
        (["certify", str(run), pictures[0], "--radius"], "calibrate"),
        (["calibrate", str(run), "--accept", "95"], "a share between 0 and 1"),
        (["calibrate", str(run), "--limit", "5"], "5 images are too few"),
        (["calibrate", str(run), "--limit", "-1"], "a limit is 0"),
        (["calibrate", str(run), "--in-set", "nothing_like_it"], "nothing_like_it"),
        (["calibrate", str(run), "--in-set", "demo_letters"], "other classes"),
        (["calibrate", str(run), "--split", "train"], "says nothing of new images"),
        (["certify", str(run), "a" * 5000], "File name too long"),
        (["certify", str(run), pictures[0], "--certificate", pictures[0]], "would overwrite"),
        (["certify", str(run), pictures[0], "--certificate", str(run / "weights.safetensors")], "would overwrite"),
        (["certify", str(run), pictures[0], "--certificate", "."], "no regular file"),
        (["certify", str(run), pictures[0], "--certificate", str(run)], "no regular file"),
    ):
        assert told in failing(arguments, capsys)


def test_a_path_in_a_recipe_is_not_followed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = json.loads((run / "recipe.json").read_text())
    (run / "recipe.json").write_text(json.dumps(recipe | {"in_set": "/etc"}))
    assert "which has no known name: give --in-set" in failing(["calibrate", str(run)], capsys)
