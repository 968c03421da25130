"""A small world of good files, one of each kind that we read: what the corpus then spoils, one at a time."""

from __future__ import annotations

import csv
import json
import os
import plistlib
import shutil
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from protopyramid.config import dump_config
from protopyramid.data.manifest import Manifest, read_manifest
from protopyramid.data.phantoms import write_phantoms
from protopyramid.data.store import ImageStore
from protopyramid.inference.ood import limits_digest, validation_limits, write_limits
from protopyramid.model import build_model
from protopyramid.runs.run import load_run

from .. import pictures
from ..data.importers.conftest import save_workbook
from ..harness import tiny
from ..pictures import save_film, save_noise
from ..readings import write_readings
from ..untrained import COUNTS, write_run

CANARY = b"nobody may touch this"


def save_dicom_noise(path: Path, size: tuple[int, int], **elements: object) -> None:
    """Write a film of noise, and the folders on its way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures.save_dicom_noise(path, size, **elements)


PICTURES = ("png", "jpg", "tif", "pgm", "dcm")


def build(folder: Path) -> Path:
    """Make the world in a folder, canaries beside it."""
    world = folder / "world"
    manifest = read_manifest(
        write_phantoms(
            world / "data", seed=3, patients=6, size=64, splits=(0.5, 0.2, 0.3), workers=1
        )
    )
    write_run(world / "run", manifest, "fpn-iaia-bl", dict(COUNTS))
    write_run(world / "other", manifest, "vgg16", {})
    _pack(world)
    _pictures(world / "pictures", manifest.samples[0].image)
    _settings(world)
    _imports(world / "sources")
    _films(world / "films")
    _judged(world, manifest)
    _folds(world)
    return world


def copy(world: Path, target: Path) -> None:
    """The world again; what is only ever replaced as a whole is linked, since that is quicker."""

    def taken(source: str, destination: str) -> None:
        if source.endswith((".png", ".dcm", ".pgm", ".jpg", ".safetensors")):
            os.link(source, destination)
        else:
            shutil.copyfile(source, destination)

    shutil.copytree(world, target, copy_function=taken)
    for name in ("canary.png", "canary.txt"):
        (target.parent / name).write_bytes(CANARY)
    os.mkfifo(target / "pipe")
    (target / "null").symlink_to("/dev/null")
    (target / "loop").symlink_to("loop")


def _pictures(folder: Path, source: Path) -> None:
    folder.mkdir()
    image = Image.open(source).convert("L")
    for suffix in PICTURES[:-1]:
        image.save(folder / f"a.{suffix}")
    save_dicom_noise(folder / "a.dcm", (64, 64))
    Image.fromarray(np.full((64, 64), 255, np.uint8)).save(folder / "mask.png")
    header = "image,label,split,mask,patient_id,lesion_x0,lesion_y0,lesion_x1,lesion_y1"
    for suffix in PICTURES:
        row = f"a.{suffix},spiculated,test,mask.png,p1,10,10,50,50"
        (folder / f"{suffix}.csv").write_text(f"{header}\n{row}\n")


def _pack(world: Path) -> None:
    from protopyramid.cli.main import main

    done = main(["models", "pack", str(world / "run"), "--out", str(world / "model.zip")])
    assert done == 0


def _judged(world: Path, manifest: Manifest) -> None:
    """A run with all that evaluating leaves, a pulled model, a study of readers, and annotations."""
    from protopyramid import api
    from protopyramid.cli.main import main
    from protopyramid.reader.annotations import AnnotationFolder
    from protopyramid.sharing.pull import pull

    shutil.copytree(world / "run", world / "judged")
    api.finish(world / "judged")
    assert main(["evaluate", str(world / "judged"), "--data", str(manifest.path)]) == 0
    run = load_run(
        world / "judged"
    )  # one validation patient is too few for limits: training ones will do
    store = ImageStore(manifest.split("train"), run.config.data)
    write_limits(run.folder, validation_limits(run.model, store, 8), limits_digest(run))
    before = os.environ.get("PROTOPYRAMID_CACHE")
    os.environ["PROTOPYRAMID_CACHE"] = str(world / "cache")
    pull(str(world / "model.zip"), name="pulled")
    os.environ.pop("PROTOPYRAMID_CACHE")
    if before is not None:
        os.environ["PROTOPYRAMID_CACHE"] = before
    offer = {"name": "offered", "url": "http://127.0.0.1:9/a.zip", "sha256": "0" * 64}
    (world / "catalogue.json").write_text(json.dumps({"models": [offer]}))
    (world / "words.toml").write_text(
        'name = "a"\nversion = "1"\nsummary = "s"\nlicence = "MIT"\nlimits = ["none"]\n'
    )
    (world / "licence.txt").write_text("Use it as you like.\n")
    write_readings(world / "readings", load_run(world / "run"), manifest)
    folder = AnnotationFolder(world / "drawn", manifest.samples, manifest.path)
    folder.save(0, np.ones((64, 64), np.bool_), None)
    folder.close()


def _folds(world: Path) -> None:
    """A cross-validation, and an evaluation of the faithfulness of a run."""
    from protopyramid.cli.main import main

    data = ["--data", str(world / "data/manifest.csv")]
    folds = ["--folds", "2", "--seeds", "0", "--set", "projection.unique=patch"]
    done = main(
        ["crossval", str(world / "tiny.toml"), *data, *folds, "--out", str(world / "folds")]
    )
    assert done == 0
    assert main(["faithfulness", str(world / "judged"), *data, "--images", "1"]) == 0


def _settings(world: Path) -> None:
    config = tiny()
    (world / "tiny.toml").write_text(dump_config(config))
    (world / "short.toml").write_text('preset = "vgg16"\noverlays = ["small"]\n[train]\nseed = 1\n')
    (world / "study.toml").write_text(
        'title = "t"\ndata = "manifest"\nseeds = [0]\n[[variants]]\nname = "a"\npreset = "tiny.toml"\n'
    )
    weights = build_model(config).backbone.state_dict()
    save_file(weights, world / "weights.safetensors")
    torch.save(weights, world / "weights.pth")


def _films(folder: Path) -> None:
    for number in range(2):
        save_film(folder / f"{number}.png", number)
    rows = ["image,patient_id,lesion_x0,lesion_y0,lesion_x1,lesion_y1"]
    rows += [f"{number}.png,p{number},20,20,40,40" for number in range(2)]
    (folder / "films.csv").write_text("\n".join(rows) + "\n")


# -- downloads -----------------------------------------------------------------------------------
def _imports(folder: Path) -> None:
    for make in (_coco, _labelme, _folders, _mini_mias, _inbreast, _vindr, _cdd_cesm, _cmmd, _cbis):
        place = folder / make.__name__[1:]
        place.mkdir(parents=True)
        make(place)


def _coco(place: Path) -> None:
    save_noise(place / "a.png", (60, 60))
    content = {
        "images": [{"id": 1, "file_name": "a.png", "width": 60, "height": 60}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 20],
             "segmentation": [[10, 10, 30, 10, 30, 30, 10, 30]], "area": 400, "iscrowd": 0}
        ],
        "categories": [{"id": 1, "name": "spiculated"}],
    }  # fmt: skip
    (place / "a.json").write_text(json.dumps(content))


def _labelme(place: Path) -> None:
    save_noise(place / "a.png", (60, 60))
    shape = {"label": "mass", "points": [[10, 10], [30, 10], [30, 30]], "shape_type": "polygon"}
    content = {"shapes": [shape], "imagePath": "a.png", "imageHeight": 60, "imageWidth": 60}
    (place / "a.json").write_text(json.dumps(content))


def _folders(place: Path) -> None:
    for label in ("benign", "malignant"):
        for number in range(2):
            save_noise(place / label / f"{label}{number}.png", (40, 40), seed=number)
    Image.fromarray(np.full((40, 40), 255, np.uint8)).save(place / "benign/benign0_mask.png")


def _mini_mias(place: Path) -> None:
    lines = ["mdb001 G CIRC B 535 425 97", "mdb002 G NORM", "mdb003 F SPIC M 300 300 40"]
    (place / "Info.txt").write_text("\n".join(lines) + "\n")
    for number in (1, 2, 3):
        values = np.zeros((1024, 1024), np.uint8)
        values[100:924, 60:620] = 150 + number
        Image.fromarray(values).save(place / f"mdb{number:03d}.pgm")


def _inbreast(place: Path) -> None:
    (place / "AllXML").mkdir()
    save_dicom_noise(place / "AllDICOMs/20586908_6c613a14b80a8591_MG_R_CC_ANON.dcm", (60, 60))
    region = {
        "Name": "Mass",
        "NumberOfPoints": 3,
        "Point_px": ["(10.0, 10.0)", "(30.0, 10.0)", "(30.0, 30.0)"],
    }
    content = {"Images": [{"ImageIndex": 0, "NumberOfROIs": 1, "ROIs": [region]}]}
    (place / "AllXML/20586908.xml").write_bytes(plistlib.dumps(content))
    header = (
        "Patient ID;Patient age;Laterality;View;Acquisition date;File Name;ACR;Bi-Rads;Mass ;Micros"
    )
    (place / "INbreast.csv").write_text(f"{header}\nremoved;removed;R;CC;201001;20586908;3;4a;X;\n")


def _vindr(place: Path) -> None:
    save_dicom_noise(place / "images/s1/i1.dicom", (100, 90))
    header = (
        "study_id,series_id,image_id,laterality,view_position,height,width,breast_birads,breast_density,"
        "finding_categories,finding_birads,xmin,ymin,xmax,ymax,split"
    )
    row = "s1,e1,i1,L,MLO,100,90,BI-RADS 4,DENSITY C,\"['Mass']\",BI-RADS 5,30.5,20.0,50.5,30.0,training"
    (place / "finding_annotations.csv").write_text(f"{header}\n{row}\n")


def _cdd_cesm(place: Path) -> None:
    name = "P1_L_DM_MLO"
    path = place / "CDD-CESM/Low energy images of CDD-CESM" / f"{name}.jpg"
    path.parent.mkdir(parents=True)
    Image.fromarray(np.full((100, 120), 120, np.uint8)).save(path)
    header = [
        "Image_name", "Patient_ID", "Side", "Type", "Age", "Breast density (ACR)", "BIRADS", "Findings",
        "View", "Tags", "Machine", "Pathology Classification/ Follow up",
    ]  # fmt: skip
    film = [name, 1, "L", "DM", 44, "C", 4, "Mass", "MLO", "x", 1, "Benign"]
    mass = [name, "Irregular", "Spiculated", "High"]
    sheets = {
        "all": [header, film],
        "mass_description": [["Image_name", "Mass shape", "Mass margin", "Mass density"], mass],
    }
    save_workbook(place / "Radiology manual annotations.xlsx", sheets)
    with (place / "Radiology_hand_drawn_segmentations_v2.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(
            ["#filename", "file_size", "file_attributes", "region_count", "region_id",
             "region_shape_attributes", "region_attributes"]
        )  # fmt: skip
        circle = json.dumps({"name": "circle", "cx": 60, "cy": 50, "r": 12})
        table.writerow([f"{name}.jpg", 1, "{}", 1, 0, circle, "{}"])


def _cmmd(place: Path) -> None:
    from ..data.importers import test_cmmd as cmmd

    folder = place / "CMMD/D1-0001/07-18-2010-NA-NA-79377/1.000000-NA-70244"
    for number, (side, view) in enumerate([("R", "CC"), ("R", "MLO")], 1):
        code = "R-10242" if view == "CC" else "R-10226"
        save_dicom_noise(
            folder / f"1-{number}.dcm", (120, 100),
            ImageLaterality=side, ViewCodeSequence=cmmd.view_code("view", code),
        )  # fmt: skip
    sheets = {"README": [["about"]], cmmd.SHEET: [*cmmd.HEADER, cmmd.breast()]}
    save_workbook(place / cmmd.BOOK, sheets)
    cmmd.outline_file(place, cmmd.drawn(("mass ", cmmd.SQUARE)))


def _cbis(place: Path) -> None:
    from ..data.importers import test_cbis_ddsm as cbis

    download = cbis.Download(place)
    for patient in ("P_00001", "P_00002"):
        download.files(download.row(patient))
    download.tables()
