"""Editing: exact answers against independent optimisation, and runs that are what was described."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from protopyramid import api
from protopyramid.config.schema import HeadFitConfig
from protopyramid.data.manifest import Manifest
from protopyramid.errors import UserError
from protopyramid.inference.score_table import ScoreTable, SplitScores, read_scores
from protopyramid.prototypes import editing
from protopyramid.prototypes.editing import HeadEditor, plan_edit
from protopyramid.runs.run import Run, load_run
from protopyramid.training.head_fit import HeadProblem


def random_table(run: Run, seed: int = 0, n: int = 120, validation: int = 60) -> ScoreTable:
    """Scores of made-up images that tell the classes apart somewhat."""
    generator = torch.Generator().manual_seed(seed)
    classes = run.model.prototypes.classes
    parts = []
    for count, split in ((n, "train"), (validation, "validation")):
        labels = torch.randint(len(run.config.data.classes), (count,), generator=generator)
        own = (labels[:, None] == classes).float()
        scores = 0.3 + 0.2 * torch.randn(count, len(classes), generator=generator) + 0.1 * own
        names = tuple(f"{split}/{number}.png" for number in range(count))
        parts.append(SplitScores(names, labels, scores))
    patients = torch.arange(validation)
    looks = torch.rand(validation, 12, generator=generator)
    return ScoreTable(parts[0], parts[1], parts[1].scores, looks, patients)


def with_head_fit(run: Run, **settings: object) -> Run:
    content = run.config.model_dump()
    content["head_fit"] |= {"tolerance": 1e-9, **settings}
    return replace(run, config=type(run.config).model_validate(content))


def editor(run: Run, seed: int = 0, **settings: object) -> HeadEditor:
    usual = {"l1": 1e-3, "ridge": 1e-3, "balance": True}
    return HeadEditor(with_head_fit(run, **{**usual, **settings}), random_table(run, seed))


def naive_best(found: HeadEditor, kept: list[int], least: dict[int, float]) -> float:
    """The least loss by L-BFGS-B over positive and negative parts: |w| = u + v, w = u - v."""
    settings: HeadFitConfig = found.run.config.head_fit
    scores = found.table.train.scores[:, kept].double().numpy()
    labels, owners = found.table.train.labels.numpy(), found.classes[kept].numpy()
    first = found.first[:, kept].double().numpy()
    count, m = first.shape
    sizes = np.bincount(labels, minlength=count)
    share = 1 / (sizes[labels] * (sizes > 0).sum())
    penalty = settings.l1 * (np.arange(count)[:, None] != owners)
    rows = np.arange(len(labels))

    def value_and_slope(parts: np.ndarray) -> tuple[float, np.ndarray]:
        positive, negative = parts.reshape(2, count, m)
        weight = positive - negative
        logits = scores @ weight.T
        value = (share * (logsumexp(logits, axis=1) - logits[rows, labels])).sum()
        value += (penalty * (positive + negative)).sum()
        value += settings.ridge * ((weight - first) ** 2).sum()
        error = softmax(logits, axis=1)
        error[rows, labels] -= 1
        slope = (share[:, None] * error).T @ scores + 2 * settings.ridge * (weight - first)
        return value, np.stack([slope + penalty, penalty - slope]).ravel()

    bounds = [(0.0, None)] * (2 * count * m)
    for index, bound in least.items():
        place = owners[kept.index(index)] * m + kept.index(index)
        bounds[place], bounds[count * m + place] = (bound, None), (0.0, 0.0)  # w = u >= bound
    options = {"maxiter": 50_000, "maxfun": 50_000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 50}
    start = np.stack([first.clip(0), (-first).clip(0)]).ravel()
    for _ in range(4):
        start = minimize(
            value_and_slope, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        ).x
    return float(value_and_slope(start)[0])


# -- exactness -----------------------------------------------------------------------------------
def test_every_removal_costs_what_an_independent_fit_says(run: Run) -> None:
    found = editor(run)
    whole = naive_best(found, list(found.everything), {})
    assert found.best().objective == pytest.approx(whole, abs=1e-8)
    for cost in found.removal_costs():
        kept = [index for index in found.everything if index != cost.index]
        assert cost.exact
        assert cost.loss_increase == pytest.approx(naive_best(found, kept, {}) - whole, abs=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_removing_and_requiring_together_is_what_an_independent_fit_says(
    run: Run, seed: int
) -> None:
    found = editor(run, seed)
    random = np.random.default_rng(seed)
    own = found.best().weight.gather(0, found.classes[None])[0]
    removed = [int(random.integers(3))]  # each margin class has several
    required = {
        index: float(own[index] + random.uniform(-0.5, 1.5))
        for index in (4, 7, int(random.integers(8, len(found.everything))))
    }
    plan = found.plan(removed, required)
    expected = naive_best(found, list(plan.kept), required)
    assert plan.after.loss == pytest.approx(
        expected, abs=1e-6
    )  # weights are stored in single precision
    assert plan.exact and plan.required == dict(sorted(required.items()))


def test_required_weights_satisfy_the_conditions_of_an_optimum(run: Run) -> None:
    found = editor(run)
    own = found.best().weight.gather(0, found.classes[None])[0]
    required = {
        2: float(own[2]) + 1.0,
        5: float(own[5]) - 1.0,
    }  # the first binds, the second does not
    fit = found.fit(found.everything, required)
    weight = fit.weight.double()
    problem: HeadProblem = found.problem(found.everything)
    slope = problem.gradient(weight, (problem.x @ weight.T).softmax(1))
    binding = torch.zeros_like(weight, dtype=torch.bool)
    binding[found.classes[2], 2] = True
    assert float(weight[binding]) == pytest.approx(required[2], abs=1e-6)
    assert float(slope[binding]) > 1e-4  # its multiplier: less weight would lower the loss
    smooth = (problem.l1 == 0) & ~binding
    assert float(slope[smooth].abs().max()) < 1e-6
    nonzero = (problem.l1 > 0) & (weight != 0)
    assert float((slope + problem.l1 * weight.sign())[nonzero].abs().max()) < 1e-6
    zero = (problem.l1 > 0) & (weight == 0)
    assert bool((slope.abs() <= problem.l1 + 1e-6)[zero].all())
    assert float(weight[found.classes[5], 5]) == pytest.approx(float(own[5]), abs=0.5)


def test_a_requirement_that_already_holds_changes_nothing(run: Run) -> None:
    found = editor(run)
    own = found.best().weight.gather(0, found.classes[None])[0]
    fit = found.fit(found.everything, {3: float(own[3]) - 0.1})
    assert fit.objective == pytest.approx(found.best().objective, abs=1e-12)


def test_more_freedom_never_costs(run: Run) -> None:
    found = editor(run, l1=1e-3)
    losses = [found.fit(found.everything, {1: least}).objective for least in (0, 1, 2, 4)]
    assert losses == sorted(losses)


def test_without_a_ridge_removal_never_lowers_the_loss(run: Run) -> None:
    """Without the ridge, a removed prototype is one whose weights are zero: a smaller set of heads."""
    found = editor(run, ridge=0.0, l1=1e-2, tolerance=1e-6)
    assert min(cost.loss_increase for cost in found.removal_costs()) > -1e-5
    assert found.near_optimal(0.01) is None


# -- the ellipsoid -------------------------------------------------------------------------------
def test_the_ellipsoid_is_exact_to_second_order_on_a_smooth_problem(run: Run) -> None:
    """Without an L1 term, ends of ranges rise by the bound, the better the smaller it is."""
    found = editor(run, l1=0.0, ridge=1e-2)
    errors = []
    for bound in (1e-2, 1e-4):
        heads = found.near_optimal(bound)
        assert heads is not None and heads.free == heads.weights
        low, high = heads.rises
        errors.append(max(abs(low / bound - 1), abs(high / bound - 1)))
    assert errors[1] < 0.01 and errors[1] < errors[0]


def test_the_ellipsoid_estimates_the_cost_of_removal(run: Run) -> None:
    found = editor(run, l1=0.0, ridge=1e-2)
    heads = found.near_optimal(0.01)
    assert heads is not None
    for each, cost in zip(heads.prototypes, found.removal_costs(), strict=True):
        assert each.removal_exact == cost.loss_increase
        assert each.removal_estimate == pytest.approx(each.removal_exact, abs=2e-3)
    assert heads.largest_error < 2e-3


def test_widths_are_those_of_the_inverse_hessian(run: Run) -> None:
    found = editor(run, l1=0.0, ridge=1e-2)
    problem, best = found.problem(found.everything), found.best().weight.double()
    scores, share = problem.x.numpy(), problem.share.numpy()
    chance = softmax(scores @ best.numpy().T, axis=1)
    count, m = best.shape
    hessian = np.zeros((count * m, count * m))
    for x, p, w in zip(scores, chance, share[:, 0], strict=True):
        hessian += w * np.kron(np.diag(p) - np.outer(p, p), np.outer(x, x))
    hessian += 2 * 1e-2 * np.eye(count * m)
    widths = np.sqrt(2 * 0.05 * np.diag(np.linalg.inv(hessian))).reshape(count, m)
    heads = found.near_optimal(0.05)
    assert heads is not None
    for each in heads.prototypes:
        expected = widths[found.classes[each.index], each.index]
        assert each.high - each.weight == pytest.approx(expected, rel=1e-6)
        assert each.weight - each.low == pytest.approx(expected, rel=1e-6)


def test_weights_held_at_zero_are_not_in_the_ellipsoid(run: Run) -> None:
    found = editor(run, l1=0.05)
    heads = found.near_optimal(0.01)
    assert heads is not None
    zeros = int((found.best().weight == 0).sum())
    assert zeros > 0 and heads.weights - heads.free == zeros


# -- use and predictions -------------------------------------------------------------------------
def test_how_often_a_prototype_matters_is_counted(run: Run) -> None:
    found = editor(run)
    images, weight = found.table.validation, found.weight.numpy()
    scores = images.scores.double().numpy()
    for use in found.uses()[:4]:
        leading = deciding = 0
        for x in scores:
            logits = weight @ x
            parts = weight[logits.argmax()] * x
            leading += use.index in np.argsort(-abs(parts))[:5]
            deciding += (logits - weight[:, use.index] * x[use.index]).argmax() != logits.argmax()
        assert (use.leading, use.deciding, use.images) == (leading, deciding, len(scores))
        assert use.split == "validation"


def test_changed_predictions_are_those_of_the_two_heads(run: Run) -> None:
    found = editor(run)
    plan = found.plan([0, 4])
    images, names = found.table.validation, found.names
    before = [names[row] for row in (images.scores.double() @ found.weight.T).argmax(1)]
    after = [
        names[row]
        for row in (images.scores[:, list(plan.kept)].double() @ plan.weight.double().T).argmax(1)
    ]
    expected = {
        name: (old, new)
        for name, old, new in zip(images.names, before, after, strict=True)
        if old != new
    }
    assert expected and {c.image: (c.before, c.after) for c in plan.changes} == expected
    assert plan.changes[0].to_json()["from"] == plan.changes[0].before


def test_weights_chosen_by_hand_are_taken_as_they_are(run: Run) -> None:
    found = editor(run)
    plan = found.plan(weights={3: {"negative": -7.5, "spiculated": 2.25}})
    expected = found.weight.clone()
    expected[found.names.index("negative"), 3] = -7.5
    expected[found.names.index("spiculated"), 3] = 2.25
    torch.testing.assert_close(plan.weight.double(), expected)
    problem = found.problem(found.everything)
    assert plan.after.loss == pytest.approx(problem.objective(expected), abs=1e-6)
    assert plan.loss_increase > 0 and plan.by_hand is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"remove": [99]}, "no prototype 99"),
        ({"require": [99]}, "no prototype 99"),
        ({"remove": [1], "require": [1]}, "removed and required at once"),
        ({"require": {1: float("nan")}}, "not a number"),
        ({"weights": {0: {"round": 1.0}}}, 'no class "round"'),
        ({"weights": {0: {"negative": float("inf")}}}, "not a number"),
        ({"weights": {0: {"negative": 1.0}}, "require": [1]}, "by hand"),
    ],
)
def test_wrong_edits_are_refused(run: Run, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        editor(run).plan(**arguments)  # type: ignore[arg-type]


def test_a_black_box_has_no_prototypes_to_edit(black_box: Run) -> None:
    with pytest.raises(UserError, match="prototypes"):
        plan_edit(black_box, [0])


# -- the run that is written ---------------------------------------------------------------------
def copy_of(run: Run, folder: Path) -> Run:
    """A copy that finds the manifest, with nothing computed yet."""
    shutil.copytree(run.folder.path, folder)
    facts = json.loads((folder / "data.json").read_text())
    manifest = run.provenance.manifest_from(run.folder.path)
    (folder / "data.json").write_text(json.dumps({**facts, "manifest_path": str(manifest)}))
    return load_run(folder)


def test_the_run_written_is_the_run_described(run: Run, lesion: Path, tmp_path: Path) -> None:
    edited = run.edit(remove=[0, 4], require={1: 3.0}, out=tmp_path / "new")
    plan, new = edited.plan, edited.run
    assert new is not None and new.name == "new"
    torch.testing.assert_close(new.model.head.weight.detach(), plan.weight)
    assert {path.name for path in (tmp_path / "new").iterdir()} >= {
        "MODEL_CARD.md",
        "config.toml",
        "data.json",
        "format",
        "model.safetensors",
        "prototypes",
        "prototypes.json",
        "scores.safetensors",
    }
    # What the plan said of validation images is what the new run predicts, from pixels.
    again = editing.score_table(new, data=new.provenance.manifest_from(new.folder.path))
    logits = again.validation.scores.double() @ new.model.head.weight.detach().double().T
    labels = again.validation.labels
    assert float((logits.argmax(1) == labels).double().mean()) == plan.after.validation.accuracy
    stored = read_scores(new)
    assert stored is not None
    torch.testing.assert_close(stored.train.scores, again.train.scores, atol=1e-5, rtol=1e-5)
    assert stored.train.names == again.train.names
    explanation = new.explain(lesion)
    for name, logit in explanation.logits.items():
        parts = sum(part.contributions[name] for part in explanation.prototypes)
        assert parts == pytest.approx(logit, abs=1e-4)
    (record,) = new.provenance.edits
    assert record["from"] == run.name and record["removed"] == [0, 4]
    assert record["kept"] == list(plan.kept) and record["required"] == {"1": 3.0}
    assert record["requirements"] == {"0": 3.0} and record["by_hand"] is None
    assert record["loss"]["after"] == plan.after.loss and record["at"].endswith("+00:00")


def test_requirements_hold_in_later_edits(run: Run, tmp_path: Path) -> None:
    first = run.edit(remove=[0], require={2: 4.0}, out=tmp_path / "first").run
    assert first is not None
    plan = first.edit(remove=[5]).plan
    assert plan.required == {1: 4.0}  # prototype 2 before
    row = run.config.data.classes.index(run.prototypes[2].class_name)
    assert float(plan.weight[row, plan.kept.index(1)]) >= 4.0 - 1e-6
    assert first.edit(remove=[1]).plan.required == {}


def test_a_run_that_keeps_its_scores_needs_no_images(run: Run, tmp_path: Path) -> None:
    copy = copy_of(run, tmp_path / "copy")
    expected = plan_edit(copy, [3])
    assert read_scores(copy) is None  # asking writes nothing
    assert api.keep_scores(copy) is not None
    facts = json.loads((tmp_path / "copy/data.json").read_text())
    (tmp_path / "copy/data.json").write_text(json.dumps({**facts, "manifest_path": "gone.csv"}))
    alone = load_run(tmp_path / "copy")
    plan = plan_edit(alone, [3])
    assert plan.to_json() == expected.to_json()
    made = alone.edit(remove=[3], out=tmp_path / "new").run
    assert made is not None and len(made.prototypes) == len(run.prototypes) - 1
    with pytest.raises(UserError, match="no longer exists"):
        plan_edit(load_run(run_without_scores(alone, tmp_path / "bare")), [3])


def run_without_scores(run: Run, folder: Path) -> Path:
    shutil.copytree(run.folder.path, folder)
    (folder / "scores.safetensors").unlink()
    return folder


def test_limits_from_scores_are_those_from_images(
    make_run: object, run: Run, tmp_path: Path, manifest: Manifest
) -> None:
    """With two validation patients or more, thresholds.json is the same either way."""
    from protopyramid.data.store import ImageStore
    from protopyramid.inference.ood import validation_limits
    from protopyramid.inference.score_table import measure_scores

    samples = [*manifest.split("validation"), *manifest.split("test")]
    direct = validation_limits(run.model, ImageStore(samples, run.config.data))
    stored = measure_scores(run, manifest.split("train"), samples).limits()
    assert direct is not None and stored is not None
    assert stored.to_json() == direct.to_json()


def test_scores_of_another_model_are_not_used(run: Run, tmp_path: Path) -> None:
    copy = copy_of(run, tmp_path / "copy")
    api.keep_scores(copy)
    assert read_scores(copy) is not None
    tensors, _ = copy.folder.read_tensors("model.safetensors")
    tensors["head.weight"] = tensors["head.weight"] + 1
    copy.folder.write_tensors("model.safetensors", tensors)
    assert read_scores(load_run(tmp_path / "copy")) is None


def test_damaged_scores_are_told(run: Run, tmp_path: Path) -> None:
    copy = copy_of(run, tmp_path / "copy")
    api.keep_scores(copy)
    tensors, facts = copy.folder.read_tensors("scores.safetensors")
    tensors["train.scores"] = tensors["train.scores"][:, :2]
    copy.folder.write_tensors("scores.safetensors", tensors, facts)
    with pytest.raises(UserError, match="damaged"):
        read_scores(copy)


KILLED_AT = """
import os, signal, sys
from protopyramid.runs.run import load_run
from protopyramid.utils import files

real, left = files.write_bytes, int(sys.argv[3])

def write(target, content):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return real(target, content)

files.write_bytes = write
load_run(sys.argv[1]).edit(remove=[0], out=sys.argv[2])
"""


@pytest.mark.parametrize("writes", [0, 17])
def test_kill_9_leaves_no_half_made_run(run: Run, tmp_path: Path, writes: int) -> None:
    copy = copy_of(run, tmp_path / "copy")
    api.keep_scores(copy)
    arguments = [sys.executable, "-c", KILLED_AT, str(copy.folder.path), str(tmp_path / "new")]
    killed = subprocess.run([*arguments, str(writes)], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert not (tmp_path / "new").exists()
    made = copy.edit(remove=[0], out=tmp_path / "new").run  # again, over what was left
    assert made is not None and len(made.prototypes) == len(run.prototypes) - 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "new"]


def test_a_folder_that_holds_anything_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        run.edit(remove=[0], out=tmp_path / "new")
