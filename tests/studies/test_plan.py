"""A study is read, checked before any work, and made into configurations."""

from operator import attrgetter
from pathlib import Path

import pytest

from protopyramid.config import load_config, load_overlay
from protopyramid.data.joining import CLASSES
from protopyramid.errors import UserError
from protopyramid.studies.plan import read_study, variant_config

STUDIES = Path(__file__).parents[2] / "studies"
ONE = 'title = "T"\n[[variants]]\nname = "a"\npreset = "fpn-iaia-bl"\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


# studies/faithfulness.toml measures runs of others, and is not of this kind.
FILES = [path for path in sorted(STUDIES.glob("*.toml")) if "[[variants]]" in path.read_text()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_studies_of_the_project_can_be_read(path):
    study = read_study(path)
    assert study.shown and len(study.seeds) >= 2


def test_the_recipe_has_the_data_and_views_of_the_systems_it_is_compared_with():
    """Trained by hand or in the study, it is the same training."""
    study = read_study(STUDIES / "cbis.toml")
    recipe = load_config("cbis-margins")
    apart = {"model.tta": 4, "train.scale": 2.0}  # the recipe's own, compared in cbis-long.toml
    for key, value in study.set.items():
        expected = apart.get(key, tuple(value) if isinstance(value, list) else value)
        assert attrgetter(key)(recipe) == expected, key
    long = read_study(STUDIES / "cbis-looks.toml")
    config = variant_config(long, long.variant("protopyramid-looks"), 0, STUDIES)
    threads = {"train": config.train.model_copy(update={"threads": recipe.train.threads})}
    assert config.model_copy(update=threads) == recipe


@pytest.mark.parametrize("overlay", ["demo", "demo-second"])  # the second: its name of before
def test_a_variant_is_its_preset_with_named_then_single_settings_on_top(overlay, tmp_path):
    ours = ONE.replace("fpn-iaia-bl", "protopyramid")
    text = ours + f'on = "{overlay}"\nset = {{ "loss.contrast" = 3.0 }}\n'
    study = read_study(written(tmp_path, text))
    config = variant_config(study, study.variants[0], 7, tmp_path)
    assert config.loss.contrast == 3.0 != load_config("demo").loss.contrast
    assert config.loss.separation == load_config("demo").loss.separation
    assert config.data.image_size == load_overlay("small")["data.image_size"]
    assert (config.train.seed, config.train.threads) == (7, 1)


def test_settings_of_the_study_are_under_those_of_a_variant_and_the_callers_on_top(tmp_path):
    settings = 'set = { "loss.contrast" = 3.0, "train.batch_size" = 5, "data.image_size" = 64 }\n'
    text = settings + ONE + 'set = { "loss.contrast" = 4.0 }\n'
    study = read_study(written(tmp_path, text), {"train.batch_size": 6})
    config = variant_config(study, study.variants[0], 0, tmp_path)
    found = (config.loss.contrast, config.train.batch_size, config.data.image_size)
    assert found == (4.0, 6, 64)


def test_a_preset_may_be_a_file_beside_the_study(tmp_path):
    (tmp_path / "mine.toml").write_text('preset = "vgg16"\n[train]\nbatch_size = 5\n')
    text = ONE.replace('"fpn-iaia-bl"', '"mine.toml"')
    study = read_study(written(tmp_path, text))
    assert variant_config(study, study.variants[0], 0, tmp_path).train.batch_size == 5


def test_a_study_may_be_like_another_and_say_only_what_differs(tmp_path):
    second = ONE.partition("\n")[2].replace('"a"', '"b"')
    first = (
        'set = { "train.batch_size" = 5 }\ndata = "manifest"\n' + ONE + "control = true\n" + second
    )
    (tmp_path / "first.toml").write_text(first)
    whole = read_study(written(tmp_path, 'like = "first.toml"\nseeds = [3, 4]\n'))
    assert whole == read_study(tmp_path / "first.toml").model_copy(update={"seeds": [3, 4]})
    text = (
        'title = "U"\nlike = "first.toml"\nfolds = 2\n[[variants]]\nname = "a"\ncontrol = false\n'
    )
    study = read_study(written(tmp_path, text))
    assert (study.title, study.data, study.folds, study.each) == ("U", "manifest", 2, "fold")
    assert study.set == {"train.batch_size": 5}
    assert [(each.name, each.preset, each.occlusion_control) for each in study.variants] == [
        ("a", "fpn-iaia-bl", False)
    ]


def test_what_a_study_may_be_like_is_a_study_beside_it(tmp_path):
    (tmp_path / "odd.toml").write_text('title = "T"\nvariants = ["a"]\n')
    for name, words in [
        ("odd.toml", "variants"),
        ("../x.toml", "in the same folder"),
        ("nowhere.toml", "cannot be read"),
        ("study.toml", "leads back to itself"),
    ]:
        with pytest.raises(UserError, match=words):
            read_study(written(tmp_path, f'like = "{name}"\n{ONE}'))


def test_a_study_may_be_like_one_that_is_like_another(tmp_path):
    (tmp_path / "first.toml").write_text('set = { "train.batch_size" = 5 }\n' + ONE)
    (tmp_path / "second.toml").write_text('like = "first.toml"\nseeds = [3, 4]\n')
    study = read_study(written(tmp_path, 'like = "second.toml"\ntitle = "U"\n'))
    assert (study.title, study.seeds, study.set) == ("U", [3, 4], {"train.batch_size": 5})
    assert [each.name for each in study.variants] == ["a"]


def test_a_variant_may_be_the_run_of_another_with_other_settings(tmp_path):
    taken = '[[variants]]\nname = "b"\nrun_of = "a"\nset = { "model.tta" = 8 }\n'
    text = ONE + 'set = { "loss.contrast" = 4.0 }\n' + taken
    study = read_study(written(tmp_path, text))
    first, second = (variant_config(study, each, 0, tmp_path) for each in study.variants)
    assert (first.model.tta, second.model.tta) == (1, 8)
    model = first.model.model_copy(update={"tta": 8})
    assert first.model_copy(update={"model": model}) == second
    assert [each.after for each in study.variants] == ["", "a"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title = ", "not valid TOML"),
        (ONE.replace('preset = "fpn-iaia-bl"', ""), "give its preset"),
        (ONE + '[[variants]]\nname = "b"\nrun_of = "c"\n', "not an earlier variant"),
        (
            ONE + '[[variants]]\nname = "b"\nrun_of = "a"\nset = { "train.seed" = 1 }\n',
            "so train.seed cannot be set",
        ),
        (
            ONE + '[[variants]]\nname = "b"\nrun_of = "a"\npreset = "vgg16"\n',
            "so preset cannot be set",
        ),
        ("folds = 2\n" + ONE, 'data = "manifest"'),
        ('folds = 2\nholdout = 0.2\ndata = "manifest"\n' + ONE, "without holdout"),
        ('folds = 1\ndata = "manifest"\n' + ONE, "two or more"),
        ("dealing = 2\n" + ONE, "set folds too"),
        ('title = "T"\nvariants = []\n', "variants"),
        (ONE + 'colour = "red"\n', "colour"),
        (ONE.replace('"a"', '"../a"'), "name"),
        (ONE + ONE.partition("\n")[2], 'two variants are called "a"'),
        (ONE + 'backbone_from = "b"\n', "not an earlier variant"),
        (ONE + 'on = "huge"\n', "small, protopyramid, demo"),
        (ONE + 'set = { "loss.contrasts" = 1.0 }\n', "loss.contrast"),
        (ONE.replace("fpn-iaia-bl", "nowhere.toml"), "nowhere.toml"),
    ],
)
def test_what_is_wrong_with_a_study_is_said_in_one_line(text, words, tmp_path):
    path = written(tmp_path, text)
    with pytest.raises(UserError) as raised:
        read_study(path)
    assert words in str(raised.value) and "study.toml" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_unknown_variant_is_refused_with_the_names_there_are(tmp_path):
    study = read_study(written(tmp_path, ONE))
    with pytest.raises(UserError, match='no variant "b"; the variants are a'):
        study.variant("b")


def test_the_old_names_of_a_variants_keys_still_work(tmp_path):
    old = read_study(written(tmp_path, ONE + "control = true\nmoved = true\n"))
    new = read_study(written(tmp_path, ONE + "occlusion_control = true\nshift_test = true\n"))
    assert old == new and new.variants[0].shift_test
    (tmp_path / "first.toml").write_text(ONE + "control = true\nmoved = true\n")
    text = 'like = "first.toml"\n[[variants]]\nname = "a"\nocclusion_control = false\n'
    (taken,) = read_study(written(tmp_path, text)).variants
    assert (taken.occlusion_control, taken.shift_test) == (False, True)


def test_replicates_are_seeds_or_folds_in_folders_of_their_own(tmp_path):
    def places(head):
        return [each.folder for each in read_study(written(tmp_path, head + ONE)).replicates]

    data = 'data = "manifest"\nfolds = 2\nseeds = [0, 3]\n'
    assert places("seeds = [2, 5]\n") == ["seed-2", "seed-5"]
    assert places(data) == ["seed-0", "seed-3"]
    expected = [f"seed-{seed}/fold-{fold}" for seed in (0, 3) for fold in (0, 1)]
    assert places(data + "dealing = 2\n") == expected


LIKE = """
title = "T"
[[variants]]
name = "a"
preset = "vgg16"
set = { "train.batch_size" = 4, "train.scale" = 2.0 }
[[variants]]
name = "b"
like = "a"
sources = ["film"]
set = { "train.scale" = 3.0 }
[[variants]]
name = "c"
preset = "fpn-iaia-bl"
backbone_from = "b"
"""


def test_a_variant_like_another_has_its_settings_except_its_own(tmp_path):
    study = read_study(written(tmp_path, LIKE))
    config = variant_config(study, study.variant("b"), 0, tmp_path)
    assert (config.system, config.train.batch_size, config.train.scale) == ("vgg16", 4, 3.0)
    assert study.variant("b").sources == ["film"] and not study.variant("a").sources
    later = tmp_path / "later.toml"
    later.write_text('like = "study.toml"\n[[variants]]\nname = "b"\n')
    assert read_study(later).variant("b").preset == "vgg16"
    with pytest.raises(UserError, match='is like "b", which is not an earlier variant'):
        read_study(written(tmp_path, LIKE.replace('like = "a"', 'like = "b"')))


def test_some_variants_bring_those_that_they_start_from(tmp_path):
    study = read_study(written(tmp_path, LIKE))
    some = study.only(["c"])
    assert [(each.name, each.shown) for each in some.variants] == [("b", False), ("c", True)]
    with pytest.raises(UserError, match='no variant "d"'):
        study.only(["d"])


def test_tests_by_source_need_a_dataset(tmp_path):
    with pytest.raises(UserError, match="by_source needs"):
        read_study(written(tmp_path, "by_source = true\n" + LIKE))


def test_the_recipe_of_several_sources_is_that_of_the_study():
    study = read_study(STUDIES / "outlined.toml")
    config = variant_config(study, study.variant("protopyramid-all"), 0, STUDIES)
    recipe = load_config("margins")
    threads = {"train": config.train.model_copy(update={"threads": recipe.train.threads})}
    assert config.model_copy(update=threads) == recipe


def test_five_margins_are_an_overlay():
    config = load_config("margins", load_overlay("five-margins"))
    assert len(config.data.classes) == 6 and config.data.negative_class == "negative"
    assert CLASSES["five"] == tuple(config.data.classes)
