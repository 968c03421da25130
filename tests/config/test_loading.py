"""Any input gives a configuration or one clear line; what is written is read back."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from protopyramid.config import dump_config, load_config, load_overlay, parse_assignments
from protopyramid.config.keys import valid_keys
from protopyramid.config.schema import Config
from protopyramid.errors import UserError

from ..library import library_defaults


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "settings.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(name_or_path: str | Path, *assignments: str) -> str:
    with pytest.raises(UserError) as caught:
        load_config(name_or_path, parse_assignments(assignments))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_file_of_the_user_starts_from_the_defaults(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "[model.neck]\ndim = 64\n"))
    assert config.model.neck.dim == 64
    assert config.data == Config().data


def test_a_file_may_start_from_a_preset(tmp_path: Path) -> None:
    text = 'preset = "iaia-bl"\n[model.head]\nother = -0.25\n[data]\nclasses = ["a", "negative"]\n'
    config = load_config(write(tmp_path, text))
    assert config.model.neck.dim == 512
    assert (config.model.head.own, config.model.head.other) == (1.0, -0.25)
    assert config.data.classes == ["a", "negative"]
    assert config.data.annotated_share == 0.12


def test_tables_merge_into_a_preset_entry_by_entry(tmp_path: Path) -> None:
    text = 'preset = "fpn-iaia-bl"\n[model.prototypes.counts]\n2 = 7\n'
    assert load_config(write(tmp_path, text)).model.prototypes.counts == {2: 7, 3: 3, 4: 3, 5: 3}


def test_tables_of_a_file_without_preset_are_as_written(tmp_path: Path) -> None:
    text = "[model.prototypes.counts]\n5 = 7\n"
    assert load_config(write(tmp_path, text)).model.prototypes.counts == {5: 7}


def test_a_byte_order_mark_is_allowed(tmp_path: Path) -> None:
    path = write(tmp_path, b"\xef\xbb\xbf" + b"[train]\nseed = 3\n")
    assert load_config(path).train.seed == 3


@pytest.mark.parametrize(
    ("assignment", "read"),
    [
        ("train.seed=7", lambda c: c.train.seed == 7),
        ("model.prototypes.counts.2=5", lambda c: c.model.prototypes.counts[2] == 5),
        ("model.prototypes.counts={5=4}", lambda c: c.model.prototypes.counts == {5: 4}),
        ("model.prototypes.per_class.negative.2=9",
         lambda c: c.model.prototypes.per_class == {"negative": {2: 9}}),
        ("loss.fine.inside.indistinct.spiculated=1",
         lambda c: sum(c.loss.fine.inside["indistinct"].values()) == 2),
        ("model.neck={dim=64}", lambda c: (c.model.neck.dim, c.model.neck.kind) == (64, "pyramid")),
        ("model.pooling.k=0.05", lambda c: c.model.pooling.k == 0.05),
        ("model.pooling.k.2=20", lambda c: c.model.pooling.k == {2: 20, 3: 9, 4: 9, 5: 9}),
        ("train.schedule.3.steps.0.epochs=2", lambda c: c.train.schedule[3].steps[0].epochs == 2),
        ("augmentation.flip=False", lambda c: c.augmentation.flip is False),
        ("augmentation.zoom=[1, 1.2]", lambda c: c.augmentation.zoom == (1.0, 1.2)),
        ("data.negative_class=", lambda c: c.data.negative_class == ""),
        ("data={fit='pad'}", lambda c: (c.data.fit, c.data.image_size) == ("pad", 224)),
        ("data.fit=pad", lambda c: c.data.fit == "pad"),
        ("model.backbone.weights=/a b/w.pth", lambda c: c.model.backbone.weights == "/a b/w.pth"),
    ],
)  # fmt: skip
def test_a_dotted_key_sets_one_value(assignment, read) -> None:
    assert read(load_config("fpn-iaia-bl", parse_assignments([assignment])))


def test_other_classes_are_three_keys_away() -> None:
    config = load_config(
        "fpn-iaia-bl",
        parse_assignments(
            [
                'data.classes=["benign", "malignant", "normal"]',
                "data.negative_class=normal",
                "loss.fine.inside.benign.malignant=1",
            ]
        ),
    )
    assert config.data.classes == ["benign", "malignant", "normal"]
    assert config.loss.fine.inside["benign"] == {"malignant": 1.0}


def test_overrides_may_be_python_values() -> None:
    overrides = {
        "model.prototypes.counts": {5: np.int64(2)},
        "model.backbone.weights": Path("w.pth"),
        "data.mean": (0, 0, 0),
        "model.head.own": np.float32(0.5),
    }
    config = load_config("fpn-iaia-bl", overrides)
    assert config.model.prototypes.counts == {5: 2}
    assert config.model.backbone.weights == "w.pth"
    assert config.model.head.own == 0.5


@pytest.mark.parametrize(
    ("assignment", "parts"),
    [
        ("model.neck.dimm=3", ["model.neck.dimm", "did you mean model.neck.dim?"]),
        ("modl.neck.dim=3", ["modl.neck.dim", "did you mean model.neck.dim?"]),
        ("data.zoom=3", ["data.zoom", "did you mean augmentation.zoom?"]),
        ("train.schedule.0.epoch=3", ["did you mean train.schedule.0.epochs?"]),
        ("model.neck.dim=wide", ["model.neck.dim", "an integer", 'got "wide"']),
        ("model.neck.dim=1.5", ["model.neck.dim", "an integer", "got 1.5"]),
        ("train.seed=true", ["train.seed", "an integer", "got true"]),
        ("augmentation.flip=yes", ["augmentation.flip", "true or false", 'got "yes"']),
        ("loss.fine.kind=x", ["loss.fine.kind", "'class-pair' or 'grouped'", 'got "x"']),
        ("loss.fine.inside.benign.malignant=1", ["loss.fine.inside", "benign", "data.classes"]),
        ("data.image_size=65", ["data.image_size", "multiple of 16", "64 or 80"]),
        ("data.image_size.x=3", ["data.image_size is 224, not a table"]),
        ("data=3", ["data", "expected a table", "got 3"]),
        ("model.prototypes.counts.7=1", ["model.prototypes.counts.7", "level"]),
        ("train.schedule.9.epochs=3", ["train.schedule.9.epochs", "list of 4"]),
        ('train.schedule=[{step="nap"}]', ["train.schedule.0", "'project'", "nap"]),
        ("train.schedule.3.times=1000000000", ["train.schedule.3.times", "10000"]),
        ("train.batch_size=99999999999999999999", ["train.batch_size", "64 bits"]),
        ("model.head.own=nan", ["model.head.own", "finite"]),
        ("train.seed", ["train.seed", "KEY=VALUE"]),
        ("data..fit=pad", ["data..fit", "not a key"]),
    ],
)
def test_a_wrong_key_or_value_is_named(assignment: str, parts: list[str]) -> None:
    message = refusal("fpn-iaia-bl", assignment)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize("preset", ["fpn-iaia-bl", "iaia-bl", "cbis-margins"])
def test_other_classes_have_no_negative_one_unless_it_is_given(preset: str, tmp_path: Path) -> None:
    classes = '["benign", "malignant"]'
    by_override = load_config(preset, parse_assignments([f"data.classes={classes}"]))
    assert by_override.data.negative_class == ""
    by_table = load_config(preset, parse_assignments([f"data={{classes={classes}}}"]))
    by_file = load_config(write(tmp_path, f'preset = "{preset}"\ndata.classes = {classes}\n'))
    assert by_override == by_table == by_file
    again = load_config(write(tmp_path, dump_config(by_file)))
    assert again == by_file
    kept = load_config(preset, {"data.classes": ["negative", "mass"]})
    assert kept.data.negative_class == "negative"


def test_classes_of_a_file_without_preset_need_no_negative_one(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, 'data.classes = ["a", "b"]')).data.negative_class == ""
    assert Config.model_validate({"data": {"classes": ["a", "b"]}}).data.negative_class == ""


@pytest.mark.parametrize("given", ["negative", "normal"])
def test_a_given_negative_class_must_be_one_of_the_classes(given: str, tmp_path: Path) -> None:
    advice = 'set data.negative_class to one of them, or to "" for none'
    classes = 'data.classes=["benign", "malignant"]'
    assert advice in refusal("fpn-iaia-bl", classes, f"data.negative_class={given}")
    text = f'data.negative_class = "{given}"\n{classes}\n'
    assert advice in refusal(write(tmp_path, text))
    assert advice in refusal(write(tmp_path, f'preset = "iaia-bl"\n{text}'))


def test_overlays_go_between_a_preset_and_the_file(tmp_path: Path) -> None:
    text = 'preset = "iaia-bl"\noverlays = ["small"]\n[model.neck]\ndim = 7\n'
    config = load_config(write(tmp_path, text))
    assert config == load_config("iaia-bl", {**load_overlay("small"), "model.neck.dim": 7})
    alone = load_config(write(tmp_path, 'overlays = ["small"]'))
    assert alone.model_dump() == {
        **load_config("fpn-iaia-bl", {**library_defaults(), **load_overlay("small")}).model_dump(),
        "system": "custom",
    }


def test_a_file_may_start_from_a_recipe(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, 'preset = "cbis-margins"\ntrain.seed = 5\n'))
    assert config == load_config("cbis-margins", {"train.seed": 5})


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "[model.neck]\ndimm = 64\n")
    assert refusal(path).startswith(f"{path}: model.neck.dimm: no such key")


def test_a_wrong_override_does_not_blame_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "[model.neck]\ndim = 64\n")
    assert refusal(path, "train.seed=x").startswith("train.seed: ")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("a = = 3", "not valid TOML"),
        (b"\xff\xfe", "not UTF-8"),
        ("train.seed = 1979-05-27", "train.seed"),
        ('preset = "fpn"', 'did you mean "fpn-iaia-bl"?'),
        ("preset = 3", "no preset 3"),
        ('overlays = ["smal"]', 'no overlay "smal"; did you mean "small"?'),
        ('overlays = "small"', 'expected a list such as ["small"]'),
        ("overlays = [3]", "no overlay 3"),
        ('overlays = ["vgg16"]', 'no overlay "vgg16"'),
        ("x = " + "[" * 5000, "nested too deeply"),
        ("data.image_size = 0x" + "f" * 6000, "64 bits"),
        ("data.image_size = " + "9" * 6000, "not valid TOML"),
        ("[" + ".".join("a" * 3000) + "]", "settings.toml"),
    ],
)
def test_an_unusable_file_is_one_line(tmp_path: Path, content: str | bytes, part: str) -> None:
    message = refusal(write(tmp_path, content))
    assert message.startswith(str(tmp_path / "settings.toml"))
    assert part in message


def test_a_missing_file_a_folder_and_an_odd_name_are_one_line(tmp_path: Path) -> None:
    assert "the presets are fpn-iaia-bl" in refusal("no-such-thing")
    assert 'did you mean "protopnet"?' in refusal("protopnett")
    assert "is a folder" in refusal(tmp_path)
    assert refusal("nul\0byte")
    assert refusal("x" * 5000)


@pytest.mark.parametrize("overrides", [{}, load_overlay("small")])
@pytest.mark.parametrize("preset", ["fpn-iaia-bl", "iaia-bl", "protopnet", "vgg16"])
def test_what_is_dumped_is_read_back_exactly(tmp_path: Path, preset: str, overrides) -> None:
    config = load_config(preset, overrides)
    text = dump_config(config)
    again = load_config(write(tmp_path, text))
    assert again == config
    assert dump_config(again) == text


# Names are data, but not line breaks and control characters, and not whole paragraphs.
PLAIN = st.characters(codec="utf-8").filter(str.isprintable)


@given(name=st.text(PLAIN, min_size=1, max_size=90).filter(str.strip))
@settings(max_examples=50, deadline=None)
def test_any_class_name_is_read_back_exactly(name: str) -> None:
    classes = [name, f"{name}2"]
    config = load_config("fpn-iaia-bl", {"data.classes": classes, "data.negative_class": name})
    with tempfile.TemporaryDirectory() as folder:
        assert load_config(write(Path(folder), dump_config(config))) == config


def config_or_user_error(name_or_path: str | Path, assignments: list[str]) -> None:
    try:
        config = load_config(name_or_path, parse_assignments(assignments))
    except UserError as error:
        assert str(error)
        assert "\n" not in str(error)
    else:
        assert isinstance(config, Config)
        dump_config(config)


toml_values = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["2", "5", "step", "dim", "negative"]), inner, max_size=3)
    ),
    max_leaves=5,
)
keys = st.sampled_from(valid_keys()) | st.tuples(
    st.sampled_from(valid_keys()), st.sampled_from(["0", "2", "x", "steps.0", "a.b", '"q.r"', ""])
).map(".".join)


@given(content=st.text() | st.text().map(lambda text: f"[data]\n{text}"))
@settings(max_examples=100, deadline=None)
def test_any_text_as_toml_is_a_config_or_a_user_error(content: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config_or_user_error(write(Path(folder), content.encode("utf-8", "surrogatepass")), [])


@given(
    tree=st.dictionaries(
        st.sampled_from(["data", "model", "loss", "train", "preset", "x"]),
        st.dictionaries(
            st.sampled_from(["classes", "image_size", "neck", "prototypes", "schedule", "fine"]),
            toml_values,
        )
        | toml_values
        | st.just("iaia-bl"),
    )
)
@settings(max_examples=150, deadline=None)
def test_any_tables_are_a_config_or_a_user_error(tree) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config_or_user_error(write(Path(folder), tomli_w.dumps(tree)), [])


@given(
    assignments=st.lists(
        st.text()
        | st.tuples(keys, st.text()).map("=".join)
        | st.tuples(keys, toml_values).map(lambda pair: f"{pair[0]}={pair[1]}"),
        max_size=3,
    )
)
@settings(max_examples=200, deadline=None)
def test_any_assignments_are_a_config_or_a_user_error(assignments: list[str]) -> None:
    config_or_user_error("fpn-iaia-bl", assignments)


@given(overrides=st.dictionaries(keys, toml_values, max_size=3))
@settings(max_examples=200, deadline=None)
def test_any_overrides_are_a_config_or_a_user_error(overrides) -> None:
    try:
        load_config("iaia-bl", overrides)
    except UserError as error:
        assert "\n" not in str(error)
