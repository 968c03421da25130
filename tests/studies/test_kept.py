"""Kept results count for a run with the same settings, as far as these have an effect."""

import json
from pathlib import Path

import pytest

from protopyramid.config import load_config
from protopyramid.config.schema import Config
from protopyramid.runs.folder import RunFolder
from protopyramid.studies.kept import SETTINGS, is_kept, kept_on_source
from protopyramid.studies.plan import read_study, variant_config

STUDIES = Path(__file__).parents[2] / "studies"
OUTLINED = STUDIES / "kept" / "outlined"
KEPT = [path.parent for path in sorted(OUTLINED.glob(f"*/*/{SETTINGS}"))]
PLAIN = OUTLINED / "seed-0" / "protopyramid-all"  # without the context and the extent loss
ELSEWHERE = {"model.backbone.weights": "vgg16.safetensors", "train.precision": "bf16-mixed"}


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_every_kept_run_has_the_settings_that_its_study_trains_today(folder):
    study = read_study(STUDIES / "outlined.toml", ELSEWHERE)
    seed = int(folder.parent.name.removeprefix("seed-"))
    config = variant_config(study, study.variant(folder.name), seed, STUDIES)
    assert is_kept(folder)
    assert kept_on_source(RunFolder(folder), config, folder.name, "cesm") is not None


def kept_config(changes) -> Config:
    """Settings of a kept run with changes, by dotted keys."""
    tree = json.loads((PLAIN / SETTINGS).read_text(encoding="utf-8"))
    for key, value in changes.items():
        *path, last = key.split(".")
        branch = tree
        for part in path:
            branch = branch[part]
        branch[last] = value
    return Config.model_validate(tree)


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True),
        ({"loss.extent_shares": {2: 0.01}, "loss.extent_least": {5: 0.3}}, True),  # weight 0
        ({"loss.context_share": 0.5, "loss.context_every": 3}, True),
        ({"loss.extent": 1.0}, False),
        ({"loss.context": 1.0, "loss.context_share": 0.5}, False),
        ({"model.neck.dim": 64}, False),
        ({"train.seed": 99}, False),
        ({"train.precision": "16-mixed"}, True),  # where and how fast, not what
    ],
)
def test_a_kept_run_counts_where_all_settings_with_an_effect_are_the_same(changes, counts):
    found = kept_on_source(RunFolder(PLAIN), kept_config(changes), "any", "cesm")
    assert (found is not None) == counts


def test_the_weight_of_a_phase_gives_a_loss_its_effect(tmp_path):
    schedule = [
        {"step": "train", "name": "A", "learns": ["neck"], "epochs": 1, "losses": {"extent": 1.0}},
        {"step": "project"},
        {"step": "fit-head"},
    ]
    tree = kept_config({"train.schedule": schedule}).model_dump(mode="json")
    (tmp_path / SETTINGS).write_text(json.dumps(tree), encoding="utf-8")
    (tmp_path / "evaluation").symlink_to(PLAIN / "evaluation")
    same = kept_config({"train.schedule": schedule})
    other = kept_config({"train.schedule": schedule, "loss.extent_shares": {2: 0.5}})
    assert kept_on_source(RunFolder(tmp_path), same, "any", "cesm") is not None
    assert kept_on_source(RunFolder(tmp_path), other, "any", "cesm") is None


def test_the_recipe_of_the_shipped_models_folds_is_the_study_s():
    """`make model` packs a training with the recipe, and its card has the study's figures."""
    study = read_study(STUDIES / "outlined.toml", ELSEWHERE)
    ours = variant_config(study, study.variant("protopyramid-all"), 0, STUDIES)
    recipe = load_config("margins", {**ELSEWHERE, "train.seed": 0})
    assert ours.model_dump(exclude={"train": {"threads"}}) == recipe.model_dump(
        exclude={"train": {"threads"}}
    )
