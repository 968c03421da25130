"""Packing a run, with and without pictures, with 32 and 8 bits; putting pictures back."""

import io
import json
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import protopyramid as pp
from protopyramid import api
from protopyramid.data.images import read_image
from protopyramid.errors import UserError
from protopyramid.prototypes.placeholder import place_words
from protopyramid.runs import layout
from protopyramid.runs.archive import unpack
from protopyramid.runs.eight_bit import to_eight_bits, to_floats
from protopyramid.runs.folder import RunFolder
from protopyramid.sharing.attach import attach
from protopyramid.sharing.cost import eight_bit_cost
from protopyramid.sharing.pack import PackOptions, pack


def packed(run, tmp_path: Path, **options) -> pp.runs.run.Run:
    """A run as it comes out of its packed file."""
    about = pack(run, tmp_path / "a.zip", PackOptions(name="shared", **options))
    unpack(tmp_path / "a.zip", tmp_path / "models" / about.name)
    return pp.load_run(tmp_path / "models" / about.name)


def contents(tmp_path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_packed_run_explains_as_the_run_does(run, lesion, tmp_path: Path) -> None:
    other = packed(run, tmp_path)
    before, after = run.explain(lesion).to_json(), other.explain(lesion).to_json()
    assert after == before
    assert (other.folder / "format").read_text() == "1\n"
    assert {path.name for path in other.folder.path.iterdir()} >= {"model.json", "prototypes"}


def test_a_packed_run_can_be_edited_without_its_images(run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.folder.path, folder)
    facts = json.loads((folder / "data.json").read_text())
    facts["manifest_path"] = str(run.provenance.manifest_from(run.folder.path))
    (folder / "data.json").write_text(json.dumps(facts))
    own = pp.load_run(folder)
    assert api.keep_scores(own) is not None
    other = packed(own, tmp_path, pictures=False, anonymous=True)
    ours, theirs = (each.edit(remove=[0]).plan.to_json() for each in (own, other))
    names = {change["image"] for change in theirs.pop("changes")}
    assert all(name.startswith("case-") for name in names)
    assert len(ours.pop("changes")) == len(names) and theirs == ours
    pack(own, tmp_path / "a.zip", PackOptions(name="x", bits=8))  # other scores: they do not travel
    assert layout.SCORES not in contents(tmp_path)


def test_the_same_run_gives_the_same_bytes(run, tmp_path: Path) -> None:
    first = [pack(run, tmp_path / f"{n}.zip", PackOptions(name="x", bits=8)) for n in (1, 2)]
    assert first[0] == first[1]
    assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()


def test_nothing_of_this_machine_travels(run, tmp_path: Path) -> None:
    packed(run, tmp_path)
    for name, content in contents(tmp_path).items():
        assert str(run.folder.path.parent).encode() not in content, name
        assert b"manifest_path" not in content or b'"manifest_path": ""' in content
        assert not re.match(r"checkpoint|tensorboard|report", name)


def pixels_in(content: bytes) -> list[str]:
    """Marks of files that hold pixels, anywhere in some bytes."""
    marks = {"PNG": b"\x89PNG", "JPEG": b"\xff\xd8\xff", "GIF": b"GIF8", "TIFF": b"II*\0"}
    marks |= {"DICOM": b"DICM", "data URI": b"data:image", "base64 PNG": b"iVBORw0KGgo"}
    return [name for name, mark in marks.items() if mark in content]


def test_without_pictures_no_pixel_travels(run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.folder.path, folder)
    (folder / "evaluation").mkdir(exist_ok=True)
    shutil.copy(folder / "prototypes/000.png", folder / "evaluation/test-roc.png")
    (folder / "report.html").write_text('<img src="data:image/png;base64,iVBORw0KGgo">')
    pack(pp.load_run(folder), tmp_path / "a.zip", PackOptions(name="x", pictures=False))
    files = contents(tmp_path)
    assert not [name for name in files if name.endswith((".png", ".html", ".jpg", ".csv"))]
    for name, content in files.items():
        if name != "model.safetensors":  # random numbers may look like any mark
            assert pixels_in(content) == [], name
    # No row of a case's pixels is in any file, whatever it is called.
    for record in run.prototypes[:3]:
        levels = np.round(read_image(folder / layout.picture(record.index)) * 65535)
        for kind in (np.uint16, np.float32, np.uint8):
            row = levels[20] if kind is not np.uint8 else levels[20] / 257
            assert not [n for n, c in files.items() if np.asarray(row, kind).tobytes() in c]
    tensors, _ = RunFolder(folder).read_tensors("model.safetensors")
    assert set(tensors) == set(run.model.state_dict())


def test_the_scan_of_the_test_above_finds_pixels(run, tmp_path: Path) -> None:
    packed(run, tmp_path)
    found = [name for name, content in contents(tmp_path).items() if pixels_in(content)]
    assert len(found) == len(run.prototypes)


def test_without_pictures_cases_are_told_in_words(run, lesion, tmp_path: Path) -> None:
    other = packed(run, tmp_path, pictures=False)
    assert (other.folder / "format").read_text() == "2\n"  # older software refuses it
    case = other.cases.look_up([0])[0]
    assert not case.pictured
    assert case.note.splitlines()[:2] == ["picture not shared", other.prototypes[0].class_name]
    assert case.note.endswith(case.record.image[-20:])
    assert case.region.box == other.prototypes[0].box
    expected = run.cases.look_up([0])[0].cell
    assert case.cell == pytest.approx(expected)
    for each in other.cases.look_up(
        range(len(other.prototypes))
    ).values():  # of the square that is drawn
        assert each.note.splitlines()[2].endswith(f", {place_words(each.cell)}")
    explanation = other.explain(lesion)
    assert explanation.to_json()["logits"] == run.explain(lesion).to_json()["logits"]
    explanation.save(tmp_path / "why.png")
    page = Image.open(io.BytesIO(other.cases.png(0)))
    assert page.size == (448, 448)
    with pytest.raises(UserError, match="models attach"):
        other.cases.source(0)


def test_anonymous_names_leave_no_name_of_an_image(run, tmp_path: Path) -> None:
    other = packed(run, tmp_path, pictures=False, anonymous=True)
    names = {name for images in run.provenance.splits.values() for name in images}
    assert names
    for name, content in contents(tmp_path).items():
        assert not [each for each in names if each.encode() in content], name
        assert b"patient00" not in content, name
    assert all(re.fullmatch(r"case-\d{5}", record.image) for record in other.prototypes)
    assert other.provenance.digests == run.provenance.digests


def test_the_way_to_images_elsewhere_does_not_travel(run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.folder.path, folder)
    for name in (layout.DATA, layout.PROTOTYPES):
        text = (folder / name).read_text()
        images = {image for each in run.provenance.splits.values() for image in each}
        for image in sorted(images, key=len, reverse=True):
            text = text.replace(f'"{image}"', f'"../../site/archive/{image}"')
        (folder / name).write_text(text)
    other = packed(pp.load_run(folder), tmp_path, pictures=False)
    assert not [name for name, each in contents(tmp_path).items() if b"site/archive" in each]
    for before, after in zip(run.prototypes, other.prototypes, strict=True):
        assert before.image.endswith(after.image) and not after.image.startswith((".", "/"))
    assert sorted(other.provenance.digests) == sorted(run.provenance.digests)


# -- putting pictures back -------------------------------------------------------------------------
@pytest.mark.parametrize("anonymous", [False, True])
def test_pictures_are_put_back_by_digest(run, manifest, tmp_path: Path, anonymous: bool) -> None:
    other = packed(run, tmp_path, pictures=False, anonymous=anonymous)
    done = attach(other, manifest.path)
    assert len(done.by_digest) == len(run.prototypes)
    assert (done.by_name, done.missing) == ((), ())
    for record in run.prototypes:
        name = layout.picture(record.index)
        assert (other.folder / name).read_bytes() == (run.folder / name).read_bytes()
    assert pp.load_run(other.folder.path).cases.look_up([0])[0].pictured
    assert attach(other, manifest.path).there == tuple(r.index for r in run.prototypes)


def own_images(run, manifest, folder: Path, change) -> Path:
    """A manifest of the prototypes' images, each changed by a function of pixels (H, W) uint8."""
    rows = ["image"]
    for name in sorted({record.image for record in run.prototypes}):
        sample = next(each for each in manifest.samples if each.name == name)
        pixels = np.round(read_image(sample.image) * 255).astype(np.uint8)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(change(pixels)).save(folder / name)
        rows.append(name)
    (folder / "own.csv").write_text("\n".join(rows) + "\n")
    return folder / "own.csv"


def test_an_image_of_the_same_name_and_size_is_taken_with_a_warning(
    run, manifest, tmp_path: Path
) -> None:
    other = packed(run, tmp_path, pictures=False)

    def nearly(pixels):
        changed = pixels.copy()
        changed[0, 0] ^= 1
        return changed

    table = own_images(run, manifest, tmp_path / "site", nearly)
    with pytest.warns(UserWarning, match="by name and size, not by digest"):
        done = attach(other, table)
    assert len(done.by_name) == len(run.prototypes)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda pixels: pixels[:-4], "pixels instead of"),
        (
            lambda pixels: np.random.default_rng(0).integers(0, 255, pixels.shape, np.uint8),
            "not at its place",
        ),
    ],
)
def test_another_image_of_the_same_name_is_refused(
    run, manifest, tmp_path: Path, change, match, monkeypatch
) -> None:
    monkeypatch.setattr("protopyramid.sharing.attach.LEAST_COSINE", 0.9999)  # random weights
    other = packed(run, tmp_path, pictures=False)
    with pytest.raises(UserError, match=match):
        attach(other, own_images(run, manifest, tmp_path / "site", change))
    assert not (other.folder / "prototypes").exists()


def test_a_table_without_any_case_is_refused(run, lesion, tmp_path: Path) -> None:
    other = packed(run, tmp_path, pictures=False)
    (tmp_path / "none.csv").write_text(f"image\n{lesion}\n")
    with pytest.raises(UserError, match="has none of the"):
        attach(other, tmp_path / "none.csv")
    with pytest.raises(UserError, match="not a packed model"):
        attach(run, tmp_path / "none.csv")


# -- 8 bits ------------------------------------------------------------------------------------------
def test_eight_bits_are_rounded_per_output_channel() -> None:
    torch.manual_seed(0)
    weight = torch.randn(5, 4, 3, 3) * torch.tensor([1e-3, 1, 10, 0, 5])[:, None, None, None]
    tensors = {"backbone.a": weight, "head.weight": torch.randn(3, 4), "neck.b": torch.randn(4)}
    stored = to_eight_bits(tensors)
    assert stored["backbone.a"].dtype == torch.int8
    restored = to_floats(stored)
    assert set(restored) == set(tensors)
    for channel in range(5):  # naive: never further away than half a step of this channel
        step = float(weight[channel].abs().max()) / 127
        away = (restored["backbone.a"][channel] - weight[channel]).abs().max()
        assert float(away) <= step / 2 + 1e-9
    assert torch.equal(restored["head.weight"], tensors["head.weight"])
    assert torch.equal(restored["neck.b"], tensors["neck.b"])


def test_an_eight_bit_model_loads_as_floats_with_exact_prototypes_and_head(
    run, lesion, tmp_path: Path
) -> None:
    other = packed(run, tmp_path, bits=8)
    assert (other.folder / "format").read_text() == "2\n"
    assert other.package is not None and other.package.weights == "int8"
    assert torch.equal(other.model.prototypes.vectors, run.model.prototypes.vectors)
    assert torch.equal(other.model.head.weight, run.model.head.weight)
    assert all(p.dtype == torch.float32 for p in other.model.parameters())
    sizes = [(each / "model.safetensors").stat().st_size for each in (run.folder, other.folder)]
    assert sizes[1] < 0.4 * sizes[0]
    explanation = other.explain(lesion).to_json()
    for name, logit in explanation["logits"].items():
        total = sum(part["contributions"][name] for part in explanation["prototypes"])
        assert total == pytest.approx(logit, abs=1e-4)


def test_an_eight_bit_model_is_packed_again_unchanged(run, tmp_path: Path) -> None:
    other = packed(run, tmp_path, bits=8, pictures=False)
    again = pack(other, tmp_path / "b.zip", PackOptions(name="shared"))
    assert again.files["model.safetensors"] == other.package.files["model.safetensors"]
    assert again.cases == other.package.cases
    assert not again.pictures


def test_damaged_scales_are_refused(run, tmp_path: Path) -> None:
    other = packed(run, tmp_path, bits=8)
    tensors, metadata = other.folder.read_tensors("model.safetensors")
    name = next(each for each in tensors if each.endswith(".scale"))
    del tensors[name]
    other.folder.write_tensors("model.safetensors", tensors, metadata)
    with pytest.raises(UserError, match="has no scales"):
        pp.load_run(other.folder.path)


def test_the_cost_is_that_of_the_packed_model(run, manifest, tmp_path: Path) -> None:
    cost = eight_bit_cost([run], manifest.path, "test")
    other = packed(run, tmp_path, bits=8)
    images = [sample.image for sample in manifest.split("test")]
    before, after = (each.predict(images) for each in (run, other))
    assert cost.images == len(images)
    assert cost.changed == sum(
        b["predicted"] != a["predicted"] for b, a in zip(before, after, strict=True)
    )
    largest = max(
        abs(b["probabilities"][name] - a["probabilities"][name])
        for b, a in zip(before, after, strict=True)
        for name in b["probabilities"]
    )
    assert cost.largest == pytest.approx(largest, abs=1e-6)
    assert json.dumps(cost.to_json())
    with pytest.raises(UserError, match="8-bit weights already"):
        eight_bit_cost([other], manifest.path, "test")


def test_limits_of_a_run_hold_for_its_packed_model(tmp_path: Path) -> None:
    from protopyramid.inference.ood import limits_for

    shipped = pp.load_run("phantoms")
    before, after = limits_for(shipped), limits_for(packed(shipped, tmp_path, bits=8))
    assert before is not None and after is not None
    assert after.images == before.images
    assert after.digest != before.digest
