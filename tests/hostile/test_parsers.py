"""Hypothesis on everything that is parsed: whatever it is, there is an answer or a UserError."""

from __future__ import annotations

import json
import os
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protopyramid.config import load_config
from protopyramid.data.importers import FORMATS, finder
from protopyramid.data.importers.base import Options
from protopyramid.data.importers.writer import ImageRecord
from protopyramid.data.negatives.sampling import FilmRecord
from protopyramid.errors import UserError
from protopyramid.evaluation.results import read_evaluation
from protopyramid.inference.ood import read_limits
from protopyramid.runs.archive import unpack
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.package import read_package
from protopyramid.runs.provenance import read_provenance
from protopyramid.runs.records import read_prototypes
from protopyramid.studies.plan import read_study
from protopyramid.studies.results import read_occlusion_control, read_shift_test
from protopyramid.training.state import State, read_sources
from protopyramid.utils.journal import Journal, is_file_name

from ..runs.archives import about, honest, write_zip
from . import entries, world
from .corpus import VALUES, changed_tree

EXAMPLES = settings(
    max_examples=int(os.environ.get("EXAMPLES", "25")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TEXT_FILES = [
    (source, slot)
    for source, slots in entries.IMPORTS.items()
    for slot in slots
    if slot.rpartition(".")[2] in ("json", "txt", "csv", "xml", "xlsx")
]
DRAWS = st.integers(0, 2**32).map(Random)
EDITS = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.integers(0, 40),
        st.binary(max_size=30)
        | st.sampled_from([b'"', b"\n", b",", b"\0", b"[" * 3000, b"9" * 400]),
    ),
    min_size=1,
    max_size=4,
)


def edited(good: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    """Bytes with pieces replaced: where (a share of the length), how many, by what."""
    for share, length, new in edits:
        start = int(share * len(good))
        good = good[:start] + new + good[start + length :]
    return good


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small good download of every format."""
    pytest.importorskip("pydicom")
    folder = tmp_path_factory.mktemp("downloads")
    world._imports(folder)
    return folder


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# -- downloads -----------------------------------------------------------------------------------
@pytest.mark.parametrize(("source", "slot"), TEXT_FILES)
@EXAMPLES
@given(edits=EDITS)
def test_importers_answer_or_refuse(
    downloads: Path, source: str, slot: str, edits: list[tuple[float, int, bytes]]
) -> None:
    file = downloads / source / slot
    good = file.read_bytes()
    try:
        file.write_bytes(edited(good, edits))
        with suppress(UserError):
            plan = finder(entries.FORMATS.get(source, source))(downloads / source, Options())
            assert all(crop.image.is_relative_to(downloads) for crop in plan.crops)
    finally:
        file.write_bytes(good)


def test_every_format_is_among_them() -> None:
    named = {entries.FORMATS.get(source, source) for source, _ in TEXT_FILES}
    assert named | {"folders"} == set(FORMATS)  # which reads names of folders alone


# -- settings ------------------------------------------------------------------------------------
SETTINGS = (
    b'preset = "vgg16"\noverlays = ["small"]\n[train]\nseed = 1\n[data]\nclasses = ["a", "b"]\n'
)
STUDY = b'title = "t"\nseeds = [0]\n[[variants]]\nname = "a"\npreset = "vgg16"\nset = { "train.seed" = 1 }\n'


@pytest.mark.parametrize(("good", "read"), [(SETTINGS, load_config), (STUDY, read_study)])
@EXAMPLES
@given(edits=EDITS, random=DRAWS)
def test_settings_and_studies_are_read_or_refused(
    tmp_path: Path, good: bytes, read: Callable[[Path], object], edits, random
) -> None:
    path = tmp_path / "a.toml"
    tree = changed_tree(
        tomllib.loads(good.decode()), random, tuple(v for v in VALUES if v is not None)
    )
    texts = [edited(good, edits)]
    with suppress(TypeError, ValueError, AttributeError):  # not every tree can be TOML
        texts.append(tomli_w.dumps(tree).encode(errors="replace"))
    for text in texts:
        path.write_bytes(text)
        with suppress(UserError):
            read(path)


# -- records of ours -----------------------------------------------------------------------------
IMAGE = {
    "key": "0" * 32,
    "crops": [
        {"name": "a", "mask": True, "box": [1.0, 2.0, 3.0, 4.0], "region": None},
        {"name": "b", "reason": "r"},
    ],
    "warnings": [],
    "coloured": False,
}
FILM = {"film": "a.png", "round": 0, "patches": [[0, [1, 2, 3, 4]]], "unplaced": [[1, "why"]]}


@pytest.mark.parametrize(("kind", "good"), [(ImageRecord, IMAGE), (FilmRecord, FILM)])
@EXAMPLES
@given(random=DRAWS, edits=EDITS)
def test_a_journal_gives_records_of_its_type_alone(
    tmp_path: Path, kind: type, good: dict, random, edits
) -> None:
    path = tmp_path / "work.jsonl"
    lines = [
        json.dumps(changed_tree(good, random)),
        json.dumps(good),
        json.dumps(random.choice(VALUES)),
    ]
    path.write_bytes(
        ("\n".join(lines) + "\n").encode() + edited(json.dumps(good).encode(), edits) + b"\n"
    )
    found = Journal(path, kind).read()
    assert len(found) >= 1
    assert all(type(each) is kind for each in found)
    names = [crop.name for each in found if kind is ImageRecord for crop in each.crops]
    assert all(map(is_file_name, names))


RECORDS = {
    "prototypes.json": (
        read_prototypes,
        [{"index": 0, "class": "a", "level": 2, "image": "a.png", "row": 0, "col": 1,
          "similarity": 0.5, "box": [0, 0, 1, 1]}],
    ),
    "data.json": (
        read_provenance,
        {"classes": ["a"], "manifest": "m.csv", "manifest_path": "m.csv", "counts": {"train": {"a": 1}},
         "splits": {"train": {"a.png": "0"}}, "backbone": "random"},
    ),
    "thresholds.json": (
        read_limits,
        {"images": 3, "false_flags": 0.1, "digest": "0",
         "model": {"mean": [0.0], "scale": [1.0], "limit": 1.0}, "image": {"mean": [0.0]}},
    ),
    "model.json": (read_package, about(honest())),
    "evaluation/test.json": (
        read_evaluation, {"split": "test", "classes": ["a"], "auroc": {"mean": 0.5}, "accuracy": 1.0},
    ),
    "evaluation/control.json": (read_occlusion_control, {"auroc": 0.5, "model": "0"}),
    "evaluation/moved.json": (read_shift_test, {"followed": 0.5, "stayed": 0.1, "model": "0"}),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
@EXAMPLES
@given(random=DRAWS, edits=EDITS)
def test_records_of_a_run_are_read_or_refused(tmp_path: Path, name: str, random, edits) -> None:
    read, good = RECORDS[name]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    for text in (
        json.dumps(changed_tree(good, random)).encode(errors="replace"),
        edited(json.dumps(good).encode(), edits),
        json.dumps(random.choice(VALUES)).encode(errors="replace"),
        b"[" * 100_000,
    ):
        path.write_bytes(text)
        with suppress(UserError):
            read(RunFolder(tmp_path))


STATE = {
    "position": {"stage": 1, "epoch": 0, "batch": 0}, "best_key": [0.5, 0.1], "sums": {"fine": 1.0},
    "records": RECORDS["prototypes.json"][1], "count": 1,
}  # fmt: skip


@EXAMPLES
@given(random=DRAWS, edits=EDITS)
def test_the_state_of_a_training_is_read_or_is_a_value_error(random, edits) -> None:
    for text in (
        json.dumps(changed_tree(STATE, random)),
        edited(json.dumps(STATE).encode(), edits).decode(errors="replace"),
    ):
        for read in (State.from_json, read_sources):
            with suppress(ValueError):
                read(text)


# -- packed models -------------------------------------------------------------------------------
@EXAMPLES
@given(
    edits=EDITS,
    name=st.sampled_from(sorted(honest())),
    other=st.text(min_size=1, max_size=30),
    random=DRAWS,
)
def test_an_archive_is_unpacked_inside_its_folder_or_refused_whole(
    tmp_path: Path, edits, name: str, other: str, random
) -> None:
    """Other bytes of the file or of a part (with its digest), names of parts, and words of model.json."""
    files = honest()
    good = write_zip(tmp_path / "good.zip", files).read_bytes()
    spoilt = {**files, name: edited(files[name], edits)}
    renamed = {(other if each == name else each): content for each, content in files.items()}
    tries = [edited(good, edits)]
    for parts in (spoilt, renamed):
        with suppress(ValueError, UnicodeError):  # names that a zip cannot have
            tries.append(write_zip(tmp_path / "a.zip", parts).read_bytes())
    told = changed_tree(about(files), random)
    with suppress(ValueError, UnicodeError, TypeError):
        tries.append(write_zip(tmp_path / "a.zip", files, told).read_bytes())
    target = tmp_path / "place/model"
    for content in tries:
        (tmp_path / "a.zip").write_bytes(content)
        with suppress(UserError):
            unpack(tmp_path / "a.zip", target)
        found = {path.name for path in tmp_path.iterdir()}
        assert found <= {"good.zip", "a.zip", "place"}
        assert {path.name for path in (tmp_path / "place").iterdir()} <= {"model"}
