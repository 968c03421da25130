"""`protopyramid export`: one file, run by others, with the numbers of torch."""

from __future__ import annotations

import builtins
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from protopyramid.cli.main import main
from protopyramid.data.images import normalise

PRESETS = ["fpn-iaia-bl", "iaia-bl", "protopnet", "vgg16", "vgg16-hidden"]
LAST_POOL = {"model.backbone.last_pool": True}
HIDDEN = {"model.pooling.kind": "flatten", "model.head.hidden": [16, 8], "model.head.dropout": 0.5}


def run_of(new_run, preset):
    """A run of a system; ProtoPNet keeps VGG-16's last pool, and one black box its classifier."""
    if preset == "vgg16-hidden":
        return new_run(preset="vgg16", **LAST_POOL, **HIDDEN)
    return new_run(preset=preset, **(LAST_POOL if preset == "protopnet" else {}))


def expected(run, images):
    with torch.no_grad():
        evidence = run.model(normalise(images, run.config.data))
    return [evidence.logits, evidence.scores, *evidence.maps.values()]


def some_images(run, count):
    size = run.config.data.image_size
    return torch.rand(count, 3, size, size)


@pytest.mark.parametrize("preset", PRESETS)
def test_onnxruntime_gives_the_evidence_of_torch_for_any_number_of_images(preset, new_run, capsys):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run = run_of(new_run, preset)
    assert main(["export", str(run.folder.path), "--format", "onnx"]) == 0
    difference, path, description = capsys.readouterr().out.splitlines()
    assert float(difference.rpartition(" ")[2]) <= 1e-4
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    layer = run.model.prototypes
    levels = [] if layer is None else sorted(set(layer.levels.tolist()))
    assert names == ["logits", "scores", *(f"map_{level}" for level in levels)]
    assert names == json.loads(Path(description).read_text())["outputs"]
    for count in (1, 4):
        images = some_images(run, count)
        found = session.run(names, {"images": images.numpy()})
        for ours, theirs in zip(found, expected(run, images), strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-4)


def test_an_export_uses_the_tta_of_the_run(new_run, tmp_path):
    run, single = new_run("eight", **{"model.tta": 8}), new_run("one")
    out = tmp_path / "model.pt2"
    command = ["export", str(run.folder.path), "--format", "torch-export", "--out", str(out)]
    assert main(command) == 0
    images = some_images(run, 3)
    logits = torch.export.load(out).module()(images)[0]
    torch.testing.assert_close(logits, expected(run, images)[0], rtol=0, atol=1e-4)
    assert not torch.allclose(logits, expected(single, images)[0], atol=1e-4)


@pytest.mark.parametrize("preset", PRESETS)
def test_torch_loads_the_export_without_our_classes(preset, new_run, tmp_path, capsys):
    run = run_of(new_run, preset)
    out = tmp_path / "a" / "model.pt2"
    assert (
        main(["export", str(run.folder.path), "--format", "torch-export", "--out", str(out)]) == 0
    )
    assert str(out) in capsys.readouterr().out
    program = torch.export.load(out).module()
    for count in (1, 4):
        images = some_images(run, count)
        for ours, theirs in zip(program(images), expected(run, images), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


def test_the_description_says_what_the_numbers_mean(new_run, tmp_path):
    run = new_run()
    out = tmp_path / "model.pt2"
    assert (
        main(["export", str(run.folder.path), "--format", "torch-export", "--out", str(out)]) == 0
    )
    content = json.loads((tmp_path / "model.json").read_text())
    assert content["classes"] == run.config.data.classes
    assert content["input"]["shape"] == ["batch", 3, *2 * [run.config.data.image_size]]
    assert len(content["prototypes"]) == len(run.model.prototypes.vectors)
    np.testing.assert_allclose(content["head"], run.model.head.weight.detach().numpy(), rtol=1e-6)


def test_the_description_has_no_weights_where_hidden_layers_lie_between(new_run, tmp_path):
    run, out = run_of(new_run, "vgg16-hidden"), tmp_path / "model.pt2"
    assert (
        main(["export", str(run.folder.path), "--format", "torch-export", "--out", str(out)]) == 0
    )
    assert json.loads(out.with_suffix(".json").read_text())["head"] is None


def test_without_onnx_the_user_is_told_what_to_install(new_run, monkeypatch, capsys):
    run, real = new_run(), builtins.__import__

    def without(name, *rest, **more):
        if name == "onnx":
            raise ImportError("No module named 'onnx'", name="onnx")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["export", str(run.folder.path)]) == 2
    assert "protopyramid[export]" in capsys.readouterr().err
    assert not (run.folder / "export").exists()


def test_an_export_that_differs_from_torch_is_not_written(new_run, monkeypatch, capsys, tmp_path):
    from protopyramid.exporting import write

    run, out = new_run(), tmp_path / "model.pt2"
    monkeypatch.setattr(write, "largest_difference", lambda *_: 2e-4)
    command = ["export", str(run.folder.path), "--format", "torch-export", "--out", str(out)]
    assert main(command) == 1
    assert "differs from torch" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "no such run folder"),
        (["RUN", "--format", "tflite"], "'--format'"),
        (["RUN", "--format", "torch-export", "--out", "RUN"], "is a folder"),
        (["RUN", "--format", "torch-export"], "contains a pickle"),
        (["RUN", "--out", "model.json"], "written over the model"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(arguments, words, new_run, capsys):
    folder = str(new_run().folder.path)
    given = [folder if argument == "RUN" else argument for argument in arguments]
    assert main(["export", *given]) == 2
    error = capsys.readouterr().err
    assert words in error and "Traceback" not in error


def test_a_wrong_place_is_refused_before_the_export_is_made(new_run, monkeypatch):
    from protopyramid.exporting import write

    monkeypatch.setattr(write, "to_torch_export", lambda *_: pytest.fail("made"))
    assert main(["export", str(new_run().folder.path), "--format", "torch-export"]) == 2
