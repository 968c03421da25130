"""The description of an export is enough: numpy, Pillow and ONNX Runtime alone repeat `predict`.

The program is the one that docs/export.md shows, run as it stands there.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid.config.schema import DataConfig
from protopyramid.data.images import LEVELS, prepare_sample
from protopyramid.data.manifest import Sample
from protopyramid.exporting import export_run
from protopyramid.exporting.description import preprocessing
from protopyramid.inference.prediction import predict_files

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
PROGRAM, CUTTING = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
TOLERANCE = 1e-4  # of a probability: sums in another order, and pixels on the edge of two levels


def textured(shape: tuple[int, ...], largest: int) -> np.ndarray:
    """Fine stripes and noise, so that filters differ: what a smooth image hides."""
    rows, columns = np.indices(shape[:2])
    stripes = ((rows + 2 * columns) % 5 < 2)[(...,) + (None,) * (len(shape) - 2)]
    noise = np.random.default_rng(0).random(shape)
    return ((0.5 * stripes + 0.5 * noise) * largest).astype(
        np.uint8 if largest == 255 else np.uint16
    )


PICTURES = {
    "larger": textured((150, 150), 255),
    "smaller": textured((40, 40), 255),
    "wide": textured((90, 211), 255),
    "tall": textured((301, 77), 255),
    "same size": textured((64, 64), 255),
    "same width": textured((200, 64), 255),
    "16 bits": textured((130, 97), 65535),
    "colour": textured((77, 133, 3), 255),
    "a line": textured((1, 300), 255),
}


@pytest.fixture(params=["stretch", "pad"])
def exported(request, new_run, tmp_path, monkeypatch):
    """A run exported as model.onnx and model.json into the working directory."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run = new_run(**{"data.fit": request.param, "data.image_size": 64})
    with_steep_head(run.model)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    export_run(run, "onnx", folder / "model.onnx")
    return run


def with_steep_head(model) -> None:
    """Random weights hardly tell images apart; a large head does, and shows small differences."""
    model.head.weight.data.mul_(20.0)


def by_the_page(
    picture: Path, capsys: pytest.CaptureFixture[str], program: str
) -> dict[str, float]:
    (Path.cwd() / "lesion.png").write_bytes(picture.read_bytes())
    capsys.readouterr()
    exec(compile(program, str(PAGE), "exec"), {})
    return ast.literal_eval(capsys.readouterr().out)


def save(picture: np.ndarray, path: Path) -> Path:
    Image.fromarray(picture).save(path)
    return path


def difference(ours: dict[str, float], theirs: dict[str, float]) -> float:
    assert list(ours) == list(theirs)
    return max(abs(ours[name] - theirs[name]) for name in ours)


WRONG_STEPS = {  # name: what the page says, what it might have said
    "cubic": ("Resampling.BILINEAR", "Resampling.BICUBIC"),
    "nearest": ("Resampling.BILINEAR", "Resampling.NEAREST"),
    "bits": ("/ (65535", "/ (4095"),
    "corner": ("// 2, (side - wide) // 2", "// 1, (side - wide) // 1"),
}


def test_the_page_repeats_predict_on_phantoms_and_on_other_pictures(
    exported, phantom_manifest, tmp_path, capsys
):
    files = sorted(phantom_manifest.parent.rglob("images/*.png"))[:4]
    assert len(files) == 4
    files += [save(array, tmp_path / f"{name}.png") for name, array in PICTURES.items()]
    records = predict_files(exported, files)
    for file, record in zip(files, records, strict=True):
        found = by_the_page(file, capsys, PROGRAM)
        assert difference(found, record["probabilities"]) < TOLERANCE, file.name

    # The comparison is worth something only if it sees a wrong step.
    for name, (right, wrong) in WRONG_STEPS.items():
        assert right in PROGRAM
        changed = PROGRAM.replace(right, wrong)
        worst = max(
            difference(by_the_page(file, capsys, changed), record["probabilities"])
            for file, record in zip(files, records, strict=True)
            if file.stem in ("wide", "16 bits")
        )
        unpadded = name == "corner" and exported.config.data.fit == "stretch"
        assert (worst > 5 * TOLERANCE) != unpadded, name


@pytest.mark.parametrize("fit", ["stretch", "pad"])
@pytest.mark.parametrize("shape", [(90, 211), (301, 77), (133, 150, 3)])
def test_the_page_cuts_the_square_around_a_lesion_as_the_model_sees_it(
    shape: tuple[int, ...], fit: str, tmp_path: Path
) -> None:
    picture = textured(shape, 255)
    path = save(picture, tmp_path / "film.png")
    data = DataConfig.model_validate(
        {"crop": "lesion", "region": {"margin": 0.3}, "image_size": 64, "fit": fit}
    )
    about = json.loads(json.dumps({"preprocessing": preprocessing(data)}))
    resizing = re.search(r"longest = .*?\n\n", PROGRAM, re.DOTALL)[0]  # of the page's first program
    random = np.random.default_rng(1)
    for _ in range(6):
        x0, y0 = random.uniform(0, shape[1] - 3), random.uniform(0, shape[0] - 3)
        x1, y1 = random.uniform(x0 + 2, shape[1]), random.uniform(y0 + 2, shape[0])
        sample = Sample(2, "film.png", path, "negative", "test", box=(x0, y0, x1, y1))
        expected = prepare_sample(sample, data).image.numpy()
        planes = np.moveaxis(np.atleast_3d(picture.astype(np.float32) / 255), 2, 0)
        space = {"np": np, "Image": Image, "about": about, "planes": planes, "fit": fit, "side": 64}
        space["box"] = (x0, y0, x1, y1)
        exec(compile(CUTTING + resizing, str(PAGE), "exec"), space)
        found = space["images"][0, : len(expected)]
        np.testing.assert_allclose(found, expected, atol=2e-5)  # one level of 65535


def test_the_program_imports_nothing_of_ours_and_no_torch():
    names = {
        name.name.partition(".")[0]
        for node in ast.walk(ast.parse(PROGRAM))
        if isinstance(node, ast.Import)
        for name in node.names
    }
    modules = {n.module for n in ast.walk(ast.parse(PROGRAM)) if isinstance(n, ast.ImportFrom)}
    assert names | modules == {"json", "numpy", "onnxruntime", "PIL"}


def test_the_description_tells_every_step_with_the_runs_settings():
    data = DataConfig.model_validate(
        {
            "image_size": 96,
            "fit": "pad",
            "crop": "lesion",
            "region": {"margin": 0.25},
            "mean": (0.1, 0.2, 0.3),
            "std": (0.4, 0.5, 0.6),
            "dicom": {"window": "percentile", "percentiles": (1, 99), "flip": "left"},
        }
    )
    content = json.loads(json.dumps(preprocessing(data)))
    assert content["version"] == 1
    assert all(step in content for step in content["order"])
    resize = content["resize"]
    assert (resize["fit"], resize["size"]) == ("pad", [96, 96])
    assert (resize["filter"], resize["antialias"], resize["align_corners"]) == (
        "bilinear",
        True,
        False,
    )
    assert content["round"]["levels"] == LEVELS
    assert (content["crop"]["crop"], content["crop"]["margin"]) == ("lesion", 0.25)
    assert content["order"].index("crop") < content["order"].index("resize")
    assert content["normalise"]["mean"] == [0.1, 0.2, 0.3]
    assert content["normalise"]["std"] == [0.4, 0.5, 0.6]
    dicom = content["decode"]["dicom"]
    assert (dicom["window"], dicom["percentiles"], dicom["flip"]) == ("percentile", [1, 99], "left")
    assert any("percentiles of the pixels" in rule for rule in dicom["rules"])
    assert any("right breasts are mirrored" in rule for rule in dicom["rules"])


def test_without_padding_there_is_no_padding_step():
    assert preprocessing(DataConfig())["pad"] is None
