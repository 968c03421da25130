"""Every way in: what a user, a download or a browser hands us, and the command that reads it.

To add an entry point, add a line to FILES (a file that is spoiled), NAMES_IN (a place that takes a name) or
CALLS (a public function). In arguments, {slot} is the spoiled file.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import corpus
from .world import PICTURES

OUT = "new"  # what commands write to; a command that refuses its input leaves nothing there


@dataclass(frozen=True)
class FileEntry:
    """A command that reads a file.

    slot: the good file, in the world. shape: a key of corpus.SHAPES. begun: a command that has been at work
    in the same folder before, whose files are the slot. continues: what is left after an error is what the
    same command continues from. ends: the exit code with the good file.
    """

    name: str
    slot: str
    arguments: str
    shape: str = ""
    begun: str = ""
    continues: bool = False
    ends: int = 0

    @property
    def label(self) -> str:
        return f"{self.name} ({self.slot.rpartition('/')[2]})"

    @property
    def kind_of_file(self) -> str:
        return self.shape or self.slot.rpartition(".")[2]


TRAIN = f"train tiny.toml --data data/manifest.csv --out {OUT}"
STUDY = f"study {{slot}} --data data/manifest.csv --out {OUT} --only a"
WEIGHTS = f"{TRAIN} --set model.backbone.weights={{slot}}"
EXPLAIN = "explain {run} pictures/a.png --out new"
COMPARE = "compare judged other --out new --no-figures"
CARD = "models card run --words words.toml --data data/manifest.csv --crossval folds --out new"
PACK = "models pack run --out new"
CROSSVAL = (
    "crossval tiny.toml --data data/manifest.csv --folds 2 --seeds 0 --out new"
    " --set projection.unique=patch"
)
STUDY_AGAIN = "study study.toml --data data/manifest.csv --out new --only a"
SERVE = "SERVE run --data data/manifest.csv"
READINGS = f"{SERVE} --readings readings"  # which hold a study of other cases
DATA = "data/manifest.csv"
# The backbone of `run`.
BACKBONE = "--set model.backbone.width=0.125 --backbone-from run"
NEGATIVES = f"data negatives films/films.csv {OUT} --count 4 --workers 1"
FILMS = NEGATIVES.replace("films/films.csv", "{slot}")
IMPORTS = {
    "coco": ["a.json", "a.png"],
    "labelme": ["a.json", "a.png"],
    "folders": ["benign/benign0.png", "benign/benign0_mask.png"],
    "mini_mias": ["Info.txt", "mdb001.pgm"],
    "inbreast": [
        "AllXML/20586908.xml",
        "INbreast.csv",
        "AllDICOMs/20586908_6c613a14b80a8591_MG_R_CC_ANON.dcm",
    ],
    "vindr": ["finding_annotations.csv", "images/s1/i1.dicom"],
    "cdd_cesm": [
        "Radiology manual annotations.xlsx",
        "Radiology_hand_drawn_segmentations_v2.csv",
        "CDD-CESM/Low energy images of CDD-CESM/P1_L_DM_MLO.jpg",
    ],
    "cmmd": [
        "TOMPEI-CMMD_clinical_data_v01_20250121.xlsx",
        "TOMPEI-CMMD_v01_20250123/D1-0001_MLO_R_AnnotationFile.json",
    ],
    "cbis": ["mass_case_description_train_set.csv"],
}
FORMATS = {
    "mini_mias": "mini-mias",
    "vindr": "vindr-mammo",
    "cdd_cesm": "cdd-cesm",
    "cbis": "cbis-ddsm",
}
RUN_FILES = [
    ("format", "txt"),
    ("config.toml", ""),
    ("model.safetensors", ""),
    ("prototypes.json", ""),
    ("data.json", ""),
    ("prototypes/000.png", ""),
]
RUN_COMMANDS = {
    "predict": "predict run pictures/a.png --out new",
    "explain": "explain run pictures/a.png --out new",
    "evaluate": "evaluate run",
    "prototypes": "prototypes run --out new",
    "compare": "compare run other --out new --no-figures",
    "train --backbone-from": f"{TRAIN} {BACKBONE}",
    "export": "export run --format torch-export --out new.pt2",
    "faithfulness": "faithfulness run --images 1 --out new",
    "models pack": PACK,
    "models show": "models show run",
    "models cost": "models cost run",
    "serve": SERVE,
}


def _files() -> list[FileEntry]:
    entries = []
    for suffix in PICTURES:
        slot = f"pictures/a.{suffix}"
        entries += [
            FileEntry("predict IMAGE", slot, "predict run {slot} --out new"),
            FileEntry("explain IMAGE", slot, "explain run {slot} --out new"),
            FileEntry("data check, its image", slot, f"data check pictures/{suffix}.csv"),
            FileEntry(
                "predict TABLE, its image", slot, f"predict run pictures/{suffix}.csv --out new"
            ),
            FileEntry("reader upload", slot, "UPLOAD {slot}"),
        ]
    entries += [
        FileEntry("data check, its mask", "pictures/mask.png", "data check pictures/png.csv"),
        FileEntry("data check", "data/manifest.csv", "data check {slot}"),
        FileEntry("data check --out", "data/manifest.csv", "data check {slot} --out new.png"),
        FileEntry("predict TABLE", "data/manifest.csv", "predict run {slot} --out new"),
        FileEntry("explain TABLE", "data/manifest.csv", "explain run {slot} --out new --limit 1"),
        FileEntry("evaluate --data", "data/manifest.csv", "evaluate run --data {slot}"),
        FileEntry("train --data", "data/manifest.csv", TRAIN.replace("data/manifest.csv", "{slot}")),
        FileEntry(
            "crossval --data",
            "data/manifest.csv",
            CROSSVAL.replace("data/manifest.csv", "{slot}"),
            continues=True,
        ),
        FileEntry("serve --data", "data/manifest.csv", "CASES {slot}"),
        FileEntry("train TOML", "tiny.toml", f"train {{slot}} --data data/manifest.csv --out {OUT}"),
        FileEntry("presets show TOML", "short.toml", "presets show {slot}"),
        FileEntry("study TOML", "study.toml", STUDY, continues=True),
        FileEntry("train, its weights", "weights.safetensors", WEIGHTS),
        FileEntry("train, its weights", "weights.pth", WEIGHTS),
        FileEntry("data negatives", "films/films.csv", FILMS, continues=True),
        FileEntry("models pull", "model.zip", "models pull {slot}"),
        FileEntry("data negatives, a film", "films/0.png", NEGATIVES, continues=True),
        FileEntry("models pull, then explain", "model.zip", "PULL {slot}"),
        FileEntry("models pull, catalogue", "catalogue.json", "models pull offered", ends=2),
        FileEntry("models attach", "data/manifest.csv", "models attach pulled --data {slot}"),
        FileEntry("models card --words", "words.toml", CARD),
        FileEntry("models card --data", "data/manifest.csv", CARD),
        FileEntry("models card --crossval", "folds/predictions.csv", CARD),
        FileEntry("models pack --cases", "data/manifest.csv", f"{PACK} --cases {{slot}}"),
        FileEntry("models pack --card", "licence.txt", f"{PACK} --card {{slot}}"),
        FileEntry("models pack --licence-file", "licence.txt", f"{PACK} --licence-file {{slot}}"),
        FileEntry("models show, its card", "judged/MODEL_CARD.md", "models show judged", "txt"),
        FileEntry("presets draw TOML", "short.toml", "presets draw {slot} --out new.png"),
        FileEntry("data negatives --lesions", DATA, f"{NEGATIVES} --lesions {{slot}}", continues=True),
        FileEntry("compare --data", DATA, "compare run other --data {slot} --out new --no-figures"),
        FileEntry("prototypes --data", DATA, "prototypes run --data {slot} --out new"),
        FileEntry("faithfulness --data", DATA, "faithfulness run --images 1 --data {slot} --out new"),
        FileEntry("study --data", DATA, STUDY_AGAIN.replace(DATA, "{slot}"), continues=True),
        FileEntry("serve --readings", "readings/readings.sqlite", READINGS, continues=True, ends=2),
        FileEntry("data join", "data/manifest.csv", "data join a={slot} new"),
        FileEntry("readings", "readings/readings.sqlite", "readings readings --out new --bootstrap 5"),
        FileEntry("serve --annotations", "drawn/manifest.csv", "DRAWN {slot}", continues=True),
    ]  # fmt: skip
    for file in ("model.json", "data.json"):
        command = EXPLAIN.replace("{run}", "pulled")
        entries.append(FileEntry("explain, a pulled model", f"cache/models/pulled/{file}", command))
    for file, command in (
        ("thresholds.json", EXPLAIN.replace("{run}", "judged")),
        ("scores.safetensors", "prototypes judged --remove 1 --out new"),
        ("evaluation/test.json", COMPARE),
        ("evaluation/test.csv", COMPARE),
        ("evaluation/test-faithfulness.json", "evaluate judged"),
    ):
        name = f"{command.split()[0]}, a judged run's {file}"
        entries.append(FileEntry(name, f"judged/{file}", command))
    for source, slots in IMPORTS.items():
        command = f"data import {FORMATS.get(source, source)} sources/{source} new --workers 1"
        for slot in slots:
            shape = "dcm" if slot.endswith(".dicom") else ""
            entries.append(
                FileEntry(
                    f"data import {source}",
                    f"sources/{source}/{slot}",
                    command,
                    shape,
                    continues=True,
                )
            )
    for name, command in RUN_COMMANDS.items():
        for file, shape in RUN_FILES:
            entries.append(FileEntry(f"{name}, a run's {file}", f"run/{file}", command, shape))
    folders = "data import folders sources/folders new --workers 1"
    for name, command, files in (
        ("data import, begun", folders, [("import.json", ""), ("import.jsonl", "")]),
        ("data negatives, begun", NEGATIVES, [("negatives.json", ""), ("negatives.jsonl", "")]),
        (
            "crossval, begun",
            CROSSVAL,
            [("seed-0/fold-0/manifest.csv", ""), ("seed-0/fold-0/data.json", "")],
        ),
        ("study, begun", STUDY_AGAIN, [("seed-0/a/config.toml", ""), ("seed-0/a/data.json", "")]),
        (
            "train, begun",
            f"{TRAIN} --resume",
            [
                ("config.toml", ""),
                ("data.json", ""),
                ("metrics.jsonl", ""),
                ("checkpoint/files.json", ""),
                ("checkpoint/00000003.safetensors", ""),
            ],
        ),
    ):
        for file, shape in files:
            begun = command.removesuffix(" --resume")
            entries.append(FileEntry(f"{name}: {file}", f"new/{file}", command, shape, begun, True))
    return entries


FILES = _files()


@dataclass(frozen=True)
class NameEntry:
    """A command that meets a name: of a file, a class, a patient, a column."""

    name: str
    place: str  # what gets the name: see PLACES in the runner
    arguments: str
    names: tuple[str, ...] = corpus.NAMES

    @property
    def writes_there(self) -> bool:
        """Whether the name is that of what the user wants written."""
        before = self.arguments.partition("{name}")[0].split()
        return before[-1] in WRITES or self.arguments.startswith(tuple(WRITTEN))


WRITES = ("--out", "--summary", "--readings", "--annotations", "--cache")
WRITTEN = (
    "data phantom {name}",
    "data import folders sources/folders {name}",
    "data negatives films/films.csv {name}",
    "data join a=data/manifest.csv {name}",
)
# Every option and argument that takes a path.
PATHS = (
    "crossval tiny.toml --data {name} --out new",
    "crossval nothing.toml --data data/manifest.csv --out {name}",
    "evaluate run --data {name}",
    "predict {name} pictures/a.png --out new",
    "explain run {name} --out new",
    "explain run pictures/a.png --out {name}",
    "faithfulness run --images 1 --data {name} --out new",
    "faithfulness run --images 1 --out {name}",
    "compare run other --no-figures --out {name}",
    "compare run --data {name} --out new",
    "prototypes run --out {name}",
    "prototypes run --data {name} --out new",
    "prototypes run --remove 1 --out {name}",
    "serve {name}",
    "SERVE run --data {name}",
    "SERVE run --data data/manifest.csv --readings {name}",
    "SERVE run --data data/manifest.csv --annotations {name}",
    "readings {name}",
    "readings readings --bootstrap 5 --out {name}",
    "readings readings --bootstrap 5 --summary {name}",
    "export run --format torch-export --out {name}",
    "study {name} --out new",
    "study study.toml --data {name} --out new --only a",
    "study study.toml --data nothing.csv --out {name} --only a",
    "study study.toml --data data/manifest.csv --out new --only a --kept {name}",
    "data phantom {name} --patients 2 --patches 2 --size 32 --workers 1",
    "data import folders {name} new --workers 1",
    "data import folders sources/folders {name} --workers 1",
    "data negatives {name} new --count 2 --workers 1",
    "data negatives films/films.csv {name} --count 2 --workers 1",
    "data negatives films/films.csv new --count 2 --workers 1 --lesions {name}",
    "data negatives films new --count 2 --workers 1 --lesion-free --patient {name}",
    "data join a={name} new",
    "data join {name}=data/manifest.csv new",
    "data join a=data/manifest.csv {name}",
    "data check {name}",
    "data check data/manifest.csv --out {name}",
    "models show {name}",
    "models pack {name} --out new",
    "models pack run --out {name}",
    "models pack run --out new --name {name}",
    "models pack run --out new --cases {name}",
    "models pack run --out new --card {name}",
    "models pack run --out new --licence-file {name}",
    "models attach {name} --data data/manifest.csv",
    "models attach pulled --data {name}",
    "models cost {name}",
    "models card run --words {name} --data data/manifest.csv --crossval folds --out new",
    "models card run --words words.toml --data data/manifest.csv --crossval {name} --out new",
    "models card run --words words.toml --data data/manifest.csv --crossval folds --out {name}",
    "models remove {name}",
    "presets draw vgg16 --out {name}",
    "train tiny.toml --data data/manifest.csv --out new --cache {name}",
)
NAMES_IN = [
    NameEntry("predict, name of the image", "file", "predict run {name} --out new"),
    NameEntry("explain, name of the image", "file", "explain run {name} --out new"),
    NameEntry("predict, name of a missing image", "missing", "predict run {name} --out new"),
    NameEntry("predict --out", "missing", "predict run pictures/a.png --out {name}"),
    NameEntry("load, name of the run", "missing", "evaluate {name}"),
    NameEntry("compare, name of the run", "missing", "compare {name} run --out new"),
    NameEntry("train, name of the preset", "missing", f"train {{name}} --data data/manifest.csv --out {OUT}"),
    NameEntry("train --set", "missing", f"{TRAIN} --set {{name}}"),
    NameEntry("train --out", "missing", "train nothing.toml --data data/manifest.csv --out {name}"),
    NameEntry("train --backbone-from", "missing", f"{TRAIN} --backbone-from {{name}}"),
    NameEntry("presets show", "missing", "presets show {name}"),
    NameEntry("reader, a field", "missing", "FIELDS {name}"),
    NameEntry("models pull, name", "missing", "models pull {name}"),
    NameEntry("models pull --name", "missing", "models pull model.zip --name {name}"),
    NameEntry("data check, a class", "class", "data check data/manifest.csv"),
    NameEntry("data check, a patient", "patient", "data check data/manifest.csv"),
    NameEntry("predict, a patient", "patient", "predict run data/manifest.csv --out new"),
    NameEntry("data import, a class", "folder", "data import folders sources/folders new --workers 1"),
    NameEntry("data import, format", "missing", "data import {name} sources/folders new"),
    NameEntry("evaluate, a class of the run", "run-class", "evaluate run"),
    NameEntry("explain, a class of the run", "run-class", "explain run pictures/a.png --out new"),
    NameEntry("prototypes, a class of the run", "run-class", "prototypes run --out new"),
    NameEntry("predict, a class of the run", "run-class", "predict run pictures/a.png --out new"),
    NameEntry("models card, a class of the run", "run-class", CARD),
    NameEntry("compare, a class of the run", "run-class", "compare run --out new"),
    NameEntry("faithfulness, a class of the run", "run-class", "faithfulness run --images 1 --out new"),
    NameEntry("models pack, a class of the run", "run-class", PACK),
    *(NameEntry(f"a path: {line}", "missing", line, corpus.PATHS) for line in PATHS),
]  # fmt: skip
