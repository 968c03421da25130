"""Everything a user does, made tiny: data, training, and all that is done with a trained run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SYSTEMS = ("fpn-iaia-bl", "iaia-bl", "protopnet", "vgg16")
PHANTOM_SEEDS = (0, 7)
# The run folders, each with its system and seed.
RUNS = {**{name: (name, 0) for name in SYSTEMS}, "fpn-iaia-bl-seed-1": ("fpn-iaia-bl", 1)}

# One thread, and the instructions that most processors have: sums are then taken in the same order.
REPRODUCIBLE = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Haswell",
    "MPLBACKEND": "Agg",
    "COLUMNS": "80",
}

# No batch norm: before it, the gradient of a bias is nothing but rounding, and Adam makes steps of it.
TINY = {
    "data.image_size": "64",
    "model.backbone.width": "0.0625",
    "model.backbone.batch_norm": "false",
    "model.backbone.padding": '"replicate"',
    "model.backbone.weights": '"none"',
    "train.batch_size": "8",
    "train.eval_batch_size": "8",
    "train.threads": "1",
}
NECK = {"model.neck.dim": "8"}
ALL_PARTS = '["backbone.4", "backbone.5", "neck", "prototypes", "head"]'
FINISH = '{step = "project"}, {step = "fit-head"}'
# Frozen and learning backbones, several views, and every kind of step.
SCHEDULE = (
    '[{step = "train", name = "A", learns = ["neck", "prototypes", "head"], epochs = 1, views = 2}, '
    f"{FINISH}, "
    f'{{step = "train", name = "C", learns = {ALL_PARTS}, epochs = 1}}, {FINISH}]'
)
# The library's defaults in place of the paper's values: what was recorded was trained with them.
LIBRARY = {
    "data.annotated_share": "0.0",
    "augmentation.rotation": "10.0",
    "augmentation.zoom": "[0.9, 1.1]",
    "augmentation.brightness": "0.1",
    "augmentation.contrast": "0.1",
    "model.neck.start": '"centred"',
    "model.prototypes.init": '"patches"',
    "loss.scope": '"level"',
    "loss.act_on": '"closeness"',
    "loss.orthogonality": "0.01",
    "loss.group": '"class-level"',
    "loss.fine.reduce": '"mean"',
    "projection.source": '"class"',
    "projection.unique": '"image"',
    "head_fit.ridge": "1e-3",
    "head_fit.balance": "true",
    "train.optimizer": '"adamw"',
}
ONE_LEVEL = {**NECK, "model.prototypes.counts": "{5 = 2}", "train.schedule": SCHEDULE}
OWN = {
    "fpn-iaia-bl": {
        **NECK,
        **LIBRARY,
        "model.prototypes.counts": "{2 = 2, 3 = 0, 4 = 0, 5 = 1}",
        "train.schedule": SCHEDULE,
    },
    "iaia-bl": ONE_LEVEL,
    "protopnet": ONE_LEVEL,
    "vgg16": {
        "train.schedule": (
            '[{step = "train", name = "all", learns = ["backbone.4", "backbone.5", "head"], epochs = 2, '
            "learning_rate = 1e-4}]"
        )
    },
}

STUDY = """
title = "Tiny"
data = "manifest"
seeds = [0]

[[variants]]
name = "black-box"
preset = "vgg16"
control = true

[variants.set]
"data.image_size" = 64
"model.backbone.width" = 0.0625
"model.backbone.weights" = "none"
"train.schedule" = [{ step = "fit-head" }]
"""


def settings(system: str, **more: str) -> list[str]:
    """The options that make a system tiny; double underscores stand for dots."""
    named = {name.replace("__", "."): value for name, value in more.items()}
    chosen = {**TINY, **OWN[system], **named}
    return [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]


def phantom_commands() -> list[list[str]]:
    """Data of each seed."""
    small = ["--patients", "12", "--size", "64", "--workers", "1"]
    return [["data", "phantom", f"phantoms-{s}", "--seed", str(s), *small] for s in PHANTOM_SEEDS]


def training_commands(manifest: str) -> list[list[str]]:
    """A run of each system, and of one with a second seed."""
    found = []
    for name, (system, seed) in RUNS.items():
        tiny = settings(system, train__seed=str(seed))
        found.append(["train", system, "--data", manifest, "--out", f"runs/{name}", *tiny])
    return found


def usage_commands(manifest: str) -> list[list[str]]:
    """What is done with trained runs, and what trains many."""
    run, black_box = "runs/fpn-iaia-bl", "runs/vgg16"
    few, quick = ["--bootstrap", "20"], settings("vgg16", train__schedule='[{step = "fit-head"}]')
    image = "phantoms-0/images/patient0005-1.png"
    return [
        ["evaluate", run, *few],
        ["predict", run, manifest, "--split", "test", "--out", "predictions.csv"],
        ["explain", run, image, "--out", "explained"],
        ["prototypes", run, "--out", "gallery", "--nearest", "2"],
        ["compare", run, black_box, "--out", "compared", "--no-figures", *few],
        ["export", run, "--format", "torch-export", "--out", "exported/model.pt2"],
        ["crossval", "vgg16", "--data", manifest, "--out", "crossval", "--folds", "2", *quick],
        ["study", "tiny.toml", "--data", manifest, "--out", "study"],
    ]


def commands() -> list[list[str]]:
    """The whole workflow, in order."""
    manifest = "phantoms-0/manifest.csv"
    return [*phantom_commands(), *training_commands(manifest), *usage_commands(manifest)]


def environment() -> dict[str, str]:
    """The environment of this process, made reproducible."""
    return {**os.environ, **REPRODUCIBLE}


def run_all(folder: Path, todo: Sequence[Sequence[str]]) -> list[str]:
    """Run commands in a folder and return what each printed; one that fails raises."""
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    jobs = [
        {
            "arguments": list(words),
            "faults": [],
            "environment": {},
            "stdout": str(logs / f"{number}.out"),
            "stderr": str(logs / f"{number}.err"),
        }
        for number, words in enumerate(todo)
    ]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parents[1] / "forked.py")],
        input="".join(json.dumps([job]) + "\n" for job in jobs),  # one after another
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(),
        check=True,
    )
    for job, line in zip(jobs, done.stdout.splitlines(), strict=True):
        (code,) = json.loads(line)
        if code:
            error = Path(job["stderr"]).read_text()
            raise RuntimeError(f"{' '.join(job['arguments'])} ended with {code}:\n{error}")
    return [Path(job["stdout"]).read_text() for job in jobs]


def run_workflow(folder: Path) -> None:
    """Run the whole workflow in an empty folder."""
    (folder / "tiny.toml").write_text(STUDY)
    run_all(folder, commands())
