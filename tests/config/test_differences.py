"""What differs from the paper is computed from the settings, and decides what a run is called."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protopyramid.config import load_config, preset_names
from protopyramid.config.differences import (
    DATA_KEYS,
    ENGINE_KEYS,
    departure_reason,
    difference_summary,
    differences,
    own_choices,
    schedule_text,
    system_title,
)
from protopyramid.config.keys import valid_keys
from protopyramid.config.overrides import flat
from protopyramid.config.schema import Config

PAPER = "fpn-iaia-bl"


def naive(config: Config, reference: str = PAPER) -> set[str]:
    """The settings that differ, by looking at each."""
    here = flat(config.model_dump(mode="json"))
    there = flat(load_config(reference).model_dump(mode="json"))
    free = (*DATA_KEYS, *ENGINE_KEYS)
    counted = {key for key in there if not any(f"{key}.".startswith(f"{each}.") for each in free)}
    return {key for key in counted if here[key] != there[key]}


def test_the_papers_system_has_no_differences() -> None:
    config = load_config(PAPER)
    assert differences(config) == []
    assert system_title(config) == "FPN-IAIA-BL"
    assert difference_summary(config) == "paper to the letter"


@pytest.mark.parametrize("name", ["protopyramid", "cbis-margins"])
def test_the_list_is_the_comparison_of_the_settings(name: str) -> None:
    config = load_config(name)
    found = differences(config)
    assert {each.key for each in found} == naive(config)
    assert len(found) > 30
    assert difference_summary(config) == f"{len(found)} differences from FPN-IAIA-BL"
    assert system_title(config) == "protopyramid"


def test_a_setting_of_each_origin_is_told_with_it() -> None:
    config = load_config(
        PAPER, {"model.pooling.kind": "topk", "model.pooling.k": 5, "model.neck.dim": 64}
    )
    assert {each.key: (each.paper, each.run) for each in differences(config)} == {
        "model.pooling.kind": ("focal", "topk"),
        "model.pooling.k": ("silent; ancestor's 9 (IAIA-BL)", "5"),
        "model.neck.dim": ("silent; ours 128", "64"),
    }


def test_a_schedule_is_one_difference_in_one_line() -> None:
    config = load_config(PAPER, {"train.schedule.0.epochs": 3.0})
    (found,) = differences(config)
    assert found.key == "train.schedule"
    assert found.paper.startswith("in part silent; ancestor's A: 10 epochs")
    assert found.run.startswith("A: 3 epochs at rates neck 0.002, prototypes 0.003, head 0.001")
    assert "12 x [C: 10 epochs" in found.run and "x 0.1 every 5" in found.run
    assert found.run == schedule_text(config.train.schedule)


@pytest.mark.parametrize(
    "overrides",
    [
        {"train.seed": 5, "train.threads": 1, "train.eval_batch_size": 4, "train.cache.half": True},
        {"data.classes": ["benign", "malignant"], "data.negative_class": ""},
        {"data.crop": "lesion", "data.region.margin": 0.25, "data.dicom.window": "full"},
        {"train.precision": "bf16-mixed", "data.memory_budget": 1.0},
        {"model.backbone.weights": "vgg16.safetensors"},
    ],
    ids=str,
)
def test_data_and_engine_do_not_count(overrides: dict[str, Any]) -> None:
    config = load_config(PAPER, overrides)
    assert differences(config) == []
    assert system_title(config) == "FPN-IAIA-BL"


@pytest.mark.parametrize("key", [*DATA_KEYS, *ENGINE_KEYS])
def test_keys_that_do_not_count_exist(key: str) -> None:
    assert key in valid_keys()


@pytest.mark.parametrize(
    ("name", "title"),
    [(PAPER, "FPN-IAIA-BL"), ("iaia-bl", "IAIA-BL"), ("protopnet", "ProtoPNet")],
)
def test_a_published_name_needs_the_published_settings(name: str, title: str) -> None:
    assert system_title(load_config(name)) == title
    assert system_title(load_config(name, {"loss.cluster": 0.5})) == f"{title}, modified"
    assert system_title(load_config(name, {"train.scale": 0.5})) == f"{title}, modified"


def test_other_systems_have_their_own_names() -> None:
    assert system_title(load_config("vgg16", {"train.scale": 0.5})) == "VGG-16"
    assert system_title(load_config(PAPER, {"system": "mine"})) == "mine"
    assert system_title(load_config("protopyramid", {"loss.contrast": 1.0})) == "protopyramid"


def test_settings_of_a_file_without_preset_are_no_published_system(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[model.neck]\ndim = 64\n")
    assert system_title(load_config(path)) == "custom"


def test_a_random_start_is_a_difference_unless_the_backbone_is_another_runs() -> None:
    config = load_config(PAPER, {"model.backbone.weights": "none"})
    (found,) = differences(config)
    assert (found.key, found.run) == ("model.backbone.weights", "none (random)")
    assert system_title(config, "random") == "FPN-IAIA-BL, modified"
    assert differences(config, "run iaia-bl") == []
    assert system_title(config, "run iaia-bl") == "FPN-IAIA-BL"


def test_a_preset_with_values_of_ours_is_not_called_as_published() -> None:
    """The black box has one linear layer for the published two of 4,096 units, and its own schedule."""
    assert set(own_choices("vgg16")) == {
        "model.backbone.last_pool",
        "model.pooling.kind",
        "model.head.hidden",
        "model.head.dropout",
        "train.schedule",
    }
    assert difference_summary(load_config("vgg16")) == "as published except for 5 settings of ours"
    assert "negative class" in own_choices("iaia-bl")["model.prototypes.negative_counts"]
    assert "data.mean" in own_choices("iaia-bl")
    assert "VGG-19" in own_choices("protopnet")["model.backbone.name"]
    paper = own_choices(PAPER)
    assert {"model.neck.dim", "model.prototypes.counts"} <= set(paper)
    assert not {"train.threads", "loss.contrast_margin", "data.crop"} & set(paper)


def test_our_variant_gives_a_reason_for_every_departure_and_for_no_other_value() -> None:
    config = load_config("protopyramid")
    reasons = {each.key: departure_reason(config, each.key) for each in differences(config)}
    assert all(len(reason) > 8 for reason in reasons.values())
    changed = load_config("protopyramid", {"loss.contrast": 1.0})
    assert departure_reason(changed, "loss.contrast") == ""
    assert departure_reason(changed, "loss.group") == reasons["loss.group"]
    assert departure_reason(load_config(PAPER), "loss.group") == ""


@pytest.mark.parametrize("name", preset_names("recipe"))
def test_a_recipe_gives_a_reason_for_every_departure_and_only_where_it_is_followed(
    name: str,
) -> None:
    config = load_config(name)
    reasons = {each.key: departure_reason(config, each.key) for each in differences(config)}
    assert all(len(reason) > 8 for reason in reasons.values())
    changed = load_config(name, {"data.negatives.count": 7})
    assert departure_reason(changed, "data.balance") == ""
    assert departure_reason(changed, "loss.group") == reasons["loss.group"]


@pytest.mark.parametrize("name", preset_names("system"))
def test_a_published_preset_is_compared_with_itself(name: str) -> None:
    if name != "protopyramid":
        assert differences(load_config(name)) == []


@settings(deadline=None)
@given(
    k=st.integers(1, 20),
    cluster=st.sampled_from([0.8, 0.5]),
    seed=st.integers(0, 9),
    unique=st.sampled_from(["none", "image"]),
)
def test_any_change_is_found_and_nothing_else(
    k: int, cluster: float, seed: int, unique: str
) -> None:
    values = {"model.pooling.k": k, "loss.cluster": cluster, "projection.unique": unique}
    config = load_config(PAPER, {**values, "train.seed": seed})
    assert {each.key for each in differences(config)} == naive(config)
