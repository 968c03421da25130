"""`protopyramid study`, with everything made tiny; what it does is the same."""

from pathlib import Path

import pytest

from protopyramid.cli.main import main
from protopyramid.data.manifest import read_manifest
from protopyramid.data.phantoms import write_phantoms
from protopyramid.runs.run import load_run

SMALL = (
    '"data.image_size" = 48, "model.backbone.width" = 0.0625, "train.scale" = 0.01, '
    '"model.neck.dim" = 8'
)
STUDY = f"""
title = "Tiny"
seeds = [3]
compare = true
share_cache = true

[[variants]]
name = "first"
preset = "iaia-bl"
on = "demo-first"
shown = false
set = {{ {SMALL}, "model.prototypes.counts" = {{ 5 = 1 }} }}

[[variants]]
name = "fpn"
preset = "fpn-iaia-bl"
on = "demo-second"
backbone_from = "first"
control = true
moved = true
set = {{ {SMALL}, "model.prototypes.counts" = {{ 2 = 1, 5 = 1 }} }}

[[variants]]
name = "vgg"
preset = "vgg16"
on = "small"
set = {{ "data.image_size" = 48, "model.backbone.width" = 0.0625, "train.scale" = 0.05 }}
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[Path, Path]:
    """The file of a study that has been run, and its folder."""
    folder = tmp_path_factory.mktemp("study")
    file, out = folder / "tiny.toml", folder / "out"
    file.write_text(STUDY)
    write_phantoms(out / "seed-3/phantoms", 3, patients=16, size=64)
    assert main(command(file, out)) == 0
    return file, out


def command(file: Path, out: Path) -> list[str]:
    settings = ["--set", "train.cache.half=true"]
    return ["study", str(file), "--out", str(out), "--workers", "2", *settings]


def test_a_study_trains_measures_and_tells(done):
    _, out = done
    text = (out / "tiny.md").read_text()
    assert "| fpn |" in text and "| vgg |" in text and "| first |" not in text
    assert "AUROC, occlusion control" in text and "Grad-CAM" in text
    assert "lesion, shift test | lesion, if not followed" in text
    assert (
        (out / "tiny.csv").read_text().startswith("variant,group,seed,figure,value\nfpn,,3,AUROC")
    )
    assert (out / "seed-3/comparison/comparison.md").is_file()


def test_its_runs_start_from_each_other(done):
    _, out = done
    run = load_run(out / "seed-3/fpn")
    assert run.folder.read_json("data.json")["backbone"] == "run first"
    assert run.config.train.seed == 3


def test_a_setting_given_to_the_study_is_one_of_every_run(done):
    _, out = done
    assert all(
        load_run(out / f"seed-3/{name}").config.train.cache.half for name in ("first", "fpn", "vgg")
    )


def test_the_cache_that_its_runs_share_is_deleted_after_the_last(done):
    _, out = done
    assert not list(out.rglob("cache"))


def test_a_study_that_is_done_is_not_done_again(done, capsys):
    file, out = done
    model = out / "seed-3/fpn/model.safetensors"
    before, text = model.stat().st_mtime_ns, (out / "tiny.md").read_text()
    assert main(command(file, out)) == 0
    assert model.stat().st_mtime_ns == before
    assert (out / "tiny.md").read_text() == text in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.toml"], "no such study"),
        (["FILE", "--seeds", "a"], "--seeds"),
        (["FILE", "--only", "fpm"], 'no variant "fpm"'),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(arguments, words, done, tmp_path, capsys):
    given = [str(done[0]) if word == "FILE" else word for word in arguments]
    assert main(["study", *given, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") <= 2 and "Traceback" not in error


def test_a_study_of_a_dataset_asks_for_it(tmp_path, capsys):
    file = tmp_path / "real.toml"
    file.write_text('title = "R"\ndata = "manifest"\n[[variants]]\nname = "a"\npreset = "vgg16"\n')
    assert main(["study", str(file), "--out", str(tmp_path / "out")]) == 2
    assert "--data" in capsys.readouterr().err


FOLDS = """
title = "Folds"
data = "manifest"
folds = 2
dealing = 2
seeds = [3]

[[variants]]
name = "vgg"
preset = "vgg16"
occlusion_control = true

[variants.set]
"data.image_size" = 48
"model.backbone.width" = 0.0625
"model.backbone.weights" = "none"
"train.schedule" = [{ step = "fit-head" }]
"""


def test_with_seed_and_fold_apart_every_fold_of_a_seed_is_a_run_of_its_own(tmp_path, capsys):
    file, out = tmp_path / "folds.toml", tmp_path / "out"
    file.write_text(FOLDS)
    data = write_phantoms(tmp_path / "phantoms", 0, patients=12, size=48)
    arguments = ["study", str(file), "--out", str(out), "--data", str(data)]
    assert main([*arguments, "--only", "vgg", "--fold", "1"]) == 0
    assert not (out / "seed-3/fold-0").exists()
    first = out / "seed-3/fold-1/vgg/model.safetensors"
    before = first.stat().st_mtime_ns
    assert main(arguments) == 0
    assert first.stat().st_mtime_ns == before
    assert load_run(out / "seed-3/fold-0/vgg").config.train.seed == 3
    lines = (out / "folds.csv").read_text().splitlines()
    assert lines[0] == "variant,group,seed,figure,value,fold"
    assert [line.split(",")[-1] for line in lines if ",AUROC," in line] == ["0", "1"]
    text = capsys.readouterr().out
    assert "2 folds of each seed: 3." in text and "over folds" in text
    tested = [
        read_manifest(out / f"seed-3/fold-{fold}/manifest.csv").split("test") for fold in (0, 1)
    ]
    assert not {each.patient for each in tested[0]} & {each.patient for each in tested[1]}
    assert main([*arguments, "--fold", "1"]) == 2
    assert main([*arguments, "--only", "vgg", "--fold", "7"]) == 2
    assert "no such fold" in capsys.readouterr().err


BY_SOURCE = """
title = "By source"
data = "manifest"
folds = 2
seeds = [0]
by_source = true

[set]
"data.image_size" = 48
"data.balance" = "source-class"
"data.annotation" = "margin"
"model.backbone.width" = 0.0625
"model.backbone.weights" = "none"
"model.neck.dim" = 8
"model.prototypes.counts" = { 2 = 1, 5 = 1 }
"train.scale" = 0.01

[[variants]]
name = "vgg-all"
preset = "vgg16"
set = { "train.schedule" = [{ step = "fit-head" }] }

[[variants]]
name = "ours-all"
preset = "protopyramid"

[[variants]]
name = "ours-one"
like = "ours-all"
sources = ["one"]
"""


@pytest.fixture(scope="module")
def by_source(tmp_path_factory) -> tuple[list[str], Path]:
    """The command of a study by source that has been run, and its folder."""
    folder = tmp_path_factory.mktemp("sources")
    manifests = [
        write_phantoms(folder / name, seed, patients=12, size=48)
        for seed, name in enumerate(("one", "two"))
    ]
    named = [f"{path.parent.name}={path}" for path in manifests]
    file, data, out = folder / "sources.toml", folder / "joined.csv", folder / "out"
    file.write_text(BY_SOURCE)
    assert main(["data", "join", *named, str(data)]) == 0
    command = ["study", str(file), "--out", str(out), "--data", str(data)]
    assert main(command) == 0
    return command, out


def test_a_study_by_source_tests_every_run_on_every_source(by_source):
    _, out = by_source
    text = (out / "sources.md").read_text()
    for source in ("one", "two"):
        for row in (f"| all | {source} | vgg-all, Grad-CAM |", f"| one | {source} | ours-one |"):
            assert row in text
    assert "| one | two | ours-all – ours-one |" in text
    assert "| source | .500 |" in text  # both sources have the same classes


def test_a_run_of_one_source_has_seen_no_other_and_is_tested_on_all_of_it(by_source):
    _, out = by_source
    run = load_run(out / "seed-0/ours-one")
    rows = read_manifest(out / "seed-0/ours-one.csv")
    source = {sample.name: sample.source for sample in rows.samples}
    used = [name for split in run.provenance.splits.values() for name in split]
    assert used and {source[name] for name in used} == {"one"}
    other = [sample for sample in rows.samples if sample.source == "two"]
    assert {sample.split for sample in other} == {"test"}
    assert run.folder.read_json("evaluation/test@two.json")["n"] == len(other)
    held_out = [s for s in rows.split("test") if s.source == "one"]
    assert run.folder.read_json("evaluation/test@one.json")["n"] == len(held_out)


def test_margin_precision_of_the_study_is_that_of_the_band(by_source):
    _, out = by_source
    run = load_run(out / "seed-0/ours-all")
    found = run.folder.read_json("evaluation/test@one.json")
    assert found["annotation"] == "margin" and found["source"] == "one"
    fine = found["activation_precision"]["fine"]
    levels = {str(each.level) for each in run.prototypes if each.class_name == "spiculated"}
    by_level = fine["per_class_and_level"]["spiculated"]
    assert 0 < fine["chance"] < 1
    assert {level for level, value in by_level.items() if value is not None} == levels


def test_some_variants_are_measured_without_training_anything_again(by_source, capsys):
    command, out = by_source
    model = out / "seed-0/ours-all/model.safetensors"
    before = model.stat().st_mtime_ns
    assert main([*command, "--variants", "ours-all,vgg-all"]) == 0
    assert model.stat().st_mtime_ns == before
    shown = capsys.readouterr().out
    assert "ours-all" in shown and "ours-one" not in shown
    assert main([*command, "--variants", "nothing"]) == 2
    assert 'no variant "nothing"' in capsys.readouterr().err


def test_evaluate_takes_one_source(by_source, capsys):
    _, out = by_source
    assert main(["evaluate", str(out / "seed-0/ours-all"), "--source", "two"]) == 0
    assert "source two" in capsys.readouterr().out
    assert main(["evaluate", str(out / "seed-0/ours-all"), "--source", "three"]) == 2
    assert "its sources are one, two" in capsys.readouterr().err


def test_kept_results_give_the_same_tables_without_the_runs(by_source, tmp_path, capsys):
    command, out = by_source
    kept = tmp_path / "kept"
    assert main([*command, "--kept", str(kept)]) == 0
    capsys.readouterr()
    files = [path for path in kept.rglob("*") if path.is_file()]
    assert files and {path.suffix for path in files} == {".json", ".csv"}
    assert not any(str(out.parent) in path.read_text() for path in files)  # no path of a machine
    elsewhere = [*command[:3], str(tmp_path / "elsewhere"), *command[4:], "--kept", str(kept)]
    assert main(elsewhere) == 0
    assert not list((tmp_path / "elsewhere").rglob("model.safetensors"))  # nothing was trained
    text = (tmp_path / "elsewhere/sources.md").read_text()
    assert text == (out / "sources.md").read_text()


def test_kept_results_of_other_settings_are_not_taken(by_source, tmp_path, capsys):
    command, _ = by_source
    kept = tmp_path / "kept"
    one = ["--variants", "vgg-all"]
    assert main([*command, "--kept", str(kept), *one]) == 0
    settings = kept / "seed-0/vgg-all/settings.json"
    settings.write_text(settings.read_text().replace('"image_size": 48', '"image_size": 64'))
    elsewhere = [*command[:3], str(tmp_path / "elsewhere"), *command[4:], "--kept", str(kept)]
    assert main([*elsewhere, *one]) == 0
    assert (tmp_path / "elsewhere/seed-0/vgg-all/model.safetensors").is_file()
    assert '"image_size": 48' in settings.read_text()


def test_only_results_by_source_are_kept(tmp_path, capsys):
    file = tmp_path / "study.toml"
    file.write_text('title = "T"\n[[variants]]\nname = "a"\npreset = "vgg16"\n')
    command = ["study", str(file), "--out", str(tmp_path / "out"), "--kept", str(tmp_path)]
    assert main(command) == 2
    assert "--kept" in capsys.readouterr().err
