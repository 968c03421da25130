"""Folders that were tampered with, as from an archive of a stranger: no writer writes or deletes outside."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from protopyramid.data.manifest import Manifest
from protopyramid.data.phantoms import write_phantoms
from protopyramid.errors import UserError
from protopyramid.reader.annotations import AnnotationFolder, mask_path
from protopyramid.runs.run import Run
from protopyramid.studies.faithfulness_table import read_plan, run_table
from protopyramid.studies.plan import read_study
from protopyramid.utils.files import append_line, inside, part_of
from protopyramid.utils.journal import Journal

from ..harness import Command, Reference, fault
from ..pictures import save_film, save_noise

CANARY = b"nobody may touch this"


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder that nobody may write to, with files of the names that writers use."""
    folder = tmp_path / "outside"
    names = ["000.png", "test.json", "manifest.csv", "benign0.png", "negative-00000.png", "a.log"]
    names += ["canary.png", "fold-0/config.toml", "a/config.toml", "node-0/train/done.json"]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(CANARY)
    yield folder
    left = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert left == set(names)
    assert all((folder / name).read_bytes() == CANARY for name in names)


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    for label in ("benign", "malignant"):
        for number in range(2):
            save_noise(tmp_path / f"classes/{label}/{label}{number}.png", (40, 40), seed=number)
    return tmp_path / "classes"


def refused(command: Command, line: str, link: Path) -> None:
    done = command(*shlex.split(line))
    assert done.code == 2, done.stderr
    assert f"{link}: is a link, and nothing is written through it" in done.stderr


# -- datasets ------------------------------------------------------------------------------------
@pytest.mark.parametrize("part", ["images", "masks"])
def test_an_import_does_not_write_through_links(
    command: Command, classes: Path, outside: Path, tmp_path: Path, part: str
) -> None:
    out = tmp_path / "new"
    line = f"data import folders {classes} {out} --workers 1"
    assert command(*shlex.split(line)).code == 0
    shutil.rmtree(out / part, ignore_errors=True)
    (out / part).symlink_to(outside)
    refused(command, line, out / part)


def test_a_journal_that_is_a_link_is_replaced_or_refused_but_never_followed(
    command: Command, classes: Path, outside: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new"
    line = f"data import folders {classes} {out} --workers 1"
    assert command(*shlex.split(line)).code == 0
    (out / "import.jsonl").unlink()
    (out / "import.jsonl").symlink_to(outside / "canary.png")
    assert command(*shlex.split(line)).code == 0
    assert not (out / "import.jsonl").is_symlink()
    with pytest.raises(UserError, match="is a link"):
        link = tmp_path / "work.jsonl"
        link.symlink_to(outside / "canary.png")
        Journal(link, dict[str, int]).append({"a": 1})


def test_negatives_do_not_write_through_links(
    command: Command, outside: Path, tmp_path: Path
) -> None:
    films = tmp_path / "films"
    save_film(films / "0.png")
    (films / "films.csv").write_text(
        "image,patient_id,lesion_x0,lesion_y0,lesion_x1,lesion_y1\n0.png,p,20,20,40,40\n"
    )
    out = tmp_path / "new"
    line = f"data negatives {films / 'films.csv'} {out} --count 1 --workers 1"
    assert command(*shlex.split(line)).code == 0
    shutil.rmtree(out / "images")
    (out / "images").symlink_to(outside)
    refused(command, line, out / "images")


def test_phantoms_do_not_write_through_links(outside: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new/masks").symlink_to(outside)
    with pytest.raises(UserError, match="is a link"):
        write_phantoms(tmp_path / "new", patients=1, size=32)


# -- the reader ----------------------------------------------------------------------------------
def test_the_reader_never_removes_a_mask_that_is_not_its_own(
    manifest: Manifest, outside: Path, tmp_path: Path
) -> None:
    place = tmp_path / "annotations"
    cases = manifest.samples[:2]
    folder = AnnotationFolder(place, cases, manifest.path)
    folder.save(0, np.ones((64, 64), np.bool_), None)
    folder.close()
    table = place / "manifest.csv"
    own = mask_path(cases[0].name)
    assert own in table.read_text()
    table.write_text(table.read_text().replace(own, "../outside/canary.png"))
    with pytest.raises(UserError, match="not the reader's own"):
        AnnotationFolder(place, cases, manifest.path)


def test_the_reader_does_not_write_masks_through_links(
    manifest: Manifest, outside: Path, tmp_path: Path
) -> None:
    place = tmp_path / "annotations"
    place.mkdir()
    (place / "masks").symlink_to(outside)
    folder = AnnotationFolder(place, manifest.samples[:1], manifest.path)
    with pytest.raises(UserError, match="is a link"):
        folder.save(0, np.ones((64, 64), np.bool_), None)
    folder.close()


# -- runs ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("evaluation", "evaluate {run} --data {data}"),
        ("evaluation", "faithfulness {run} --data {data} --images 1"),
        ("export", "export {run} --format onnx"),
    ],
)
def test_commands_do_not_write_through_links_of_a_run(
    command: Command, run: Run, manifest: Manifest, outside: Path, tmp_path: Path, part: str, line: str
) -> None:  # fmt: skip
    copy = tmp_path / "run"
    shutil.copytree(run.folder.path, copy)
    shutil.rmtree(copy / part, ignore_errors=True)
    (copy / part).symlink_to(outside)
    refused(command, line.format(run=copy, data=manifest.path), copy / part)


@pytest.mark.parametrize("part", ["checkpoint", "cache", "tensorboard", "metrics.jsonl"])
def test_a_training_does_not_continue_through_links(
    command: Command, reference: Reference, outside: Path, tmp_path: Path, part: str
) -> None:
    out = tmp_path / "run"
    words = reference.arguments(out)
    command(*words, faults=[fault("project")])
    link = out / part
    if link.is_dir():
        shutil.copytree(link, tmp_path / "kept")
        shutil.rmtree(link)
        link.symlink_to(tmp_path / "kept")
        before = sorted(path.name for path in (tmp_path / "kept").rglob("*"))
    else:
        link.unlink(missing_ok=True)
        link.symlink_to(outside / "canary.png" if part == "metrics.jsonl" else outside)
        before = []
    done = command(*words, "--resume")
    if part == "metrics.jsonl":  # what is read back is written again, in place of the link
        assert done.code == 0 and not link.is_symlink()
        return
    assert done.code == 2 and "is a link" in done.stderr, done.stderr
    if before:
        assert sorted(path.name for path in (tmp_path / "kept").rglob("*")) == before


@pytest.mark.parametrize("image", ["../outside/canary.png", "/etc/passwd", "no such image"])
def test_a_checkpoint_names_images_of_its_training_alone(
    command: Command, reference: Reference, outside: Path, tmp_path: Path, image: str
) -> None:
    from protopyramid.runs.folder import RunFolder
    from protopyramid.training.checkpoint import load_best, save_best

    out = tmp_path / "run"
    command(*reference.arguments(out), faults=[fault("os:replace", 1, when="prototypes/")])
    tensors, records, note = load_best(RunFolder(out))
    records[0]["image"] = image
    save_best(RunFolder(out), tensors, records, note)
    done = command(*reference.arguments(out), "--resume")
    assert done.code == 2 and "is not of this training" in done.stderr, done.stderr
    assert not list(out.glob("prototypes/*.png"))


@pytest.mark.parametrize("index", [-1, 10**6, "../0", 0.5, None])
def test_indices_of_prototypes_lead_to_no_other_file(
    command: Command, run: Run, outside: Path, tmp_path: Path, index: object
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run.folder.path, copy)
    content = json.loads((copy / "prototypes.json").read_text())
    content[0]["index"] = index
    (copy / "prototypes.json").write_text(json.dumps(content))
    for line in (f"prototypes {copy} --out {tmp_path / 'new'}",
                 f"prototypes {copy} --remove 1 --out {tmp_path / 'edited'}"):  # fmt: skip
        done = command(*shlex.split(line))
        assert done.code == 2 and "Traceback" not in done.stderr, done.stderr


# -- studies -------------------------------------------------------------------------------------
def test_crossval_does_not_write_through_links(
    command: Command, reference: Reference, outside: Path, tmp_path: Path
) -> None:
    out = tmp_path / "folds"
    out.mkdir()
    (out / "seed-0").symlink_to(outside)
    line = f"crossval {reference.toml} --data {reference.manifest} --folds 2 --seeds 0 --out {out}"
    refused(command, line, out / "seed-0")


def test_a_study_does_not_write_through_links(
    command: Command, reference: Reference, outside: Path, tmp_path: Path
) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        'title = "t"\ndata = "manifest"\nseeds = [0]\n[[variants]]\nname = "a"\n'
        f'preset = "{reference.toml}"\n'
    )
    out = tmp_path / "results"
    for link in ("seed-0", "seed-0/a"):
        shutil.rmtree(out, ignore_errors=True)
        (out / link).parent.mkdir(parents=True)
        (out / link).symlink_to(outside)
        line = f"study {study} --data {reference.manifest} --out {out}"
        refused(command, line, out / link)


@pytest.mark.parametrize("name", ["../a", "a/b", "", "cache", "Control", "phantoms", "comparison"])
def test_a_variant_has_a_name_that_no_folder_of_the_study_has(tmp_path: Path, name: str) -> None:
    study = tmp_path / "study.toml"
    study.write_text(f'title = "t"\n[[variants]]\nname = "{name}"\npreset = "vgg16"\n')
    with pytest.raises(UserError, match="name"):
        read_study(study)


def test_the_table_of_faithfulness_reads_and_writes_below_the_results_alone(
    outside: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'title = "t"\n[[sources]]\ntitle = "x"\nfolder = "../outside"\nvariants = ["a"]\n'
    )
    with pytest.raises(UserError, match="is not inside"):
        run_table(read_plan(plan), tmp_path / "results")


# -- the one place that decides --------------------------------------------------------------------
@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "a/.."])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="is not inside"):
        part_of(tmp_path, name)
    with pytest.raises(UserError, match="is not inside"):
        inside(tmp_path, f"{name}/y")


def test_no_line_is_appended_through_a_link(outside: Path, tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(outside / "a.log")
    with pytest.raises(UserError, match="is a link"):
        append_line(tmp_path / "log", "x")
