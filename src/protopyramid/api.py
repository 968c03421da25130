"""The public functions: each does one thing with a run from beginning to end, whoever calls it.

The command line, cross-validation and studies call these functions too, so a run is the same whoever
made it. Each function imports only the rooms it needs: predicting does not load the plotting library.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protopyramid.config.schema import Config
from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.run import Run, load_run
from protopyramid.utils.arguments import (
    as_path,
    check_count,
    checked_arguments,
    paths_of,
    wrong_type,
)
from protopyramid.utils.files import check_output_folder
from protopyramid.utils.opening import is_folder, real_path
from protopyramid.utils.progress import Bars, Update, no_bar, progress_bar

if TYPE_CHECKING:
    from protopyramid.data.manifest import Sample
    from protopyramid.evaluation.comparison_results import Comparison
    from protopyramid.evaluation.faithfulness_results import Faithfulness
    from protopyramid.evaluation.ood_check import FlagRates
    from protopyramid.evaluation.results import Evaluation
    from protopyramid.evaluation.split import EvaluatedSplit
    from protopyramid.explanations.explanation import Explanation
    from protopyramid.exporting import Exported, Format
    from protopyramid.inference.score_table import ScoreTable
    from protopyramid.prototypes.editing import EditPlan, Required, Weights
    from protopyramid.prototypes.neighbours import Neighbour

Place = str | Path
Box = tuple[float, float, float, float]  # x0, y0, x1, y1
COLOUR_MAP = "inferno"  # that of figures/drawing.py, which is imported only when something is drawn
LONGEST_STEM = 200  # bytes of a file name, so that a number and a suffix have room
FORMATS = ("png", "json")  # of an explanation; a PDF takes five times as long: when asked for


# -- training ------------------------------------------------------------------------------------
@checked_arguments
def train(
    config: Config | Place,
    data: Place,
    out: Place,
    *,
    backbone_from: Place | None = None,
    devices: int = 1,
    accelerator: str = "auto",
    resume: bool = False,
    cache: Place | None = None,
) -> Run:
    """Train a model on a manifest and finish its run: out-of-distribution limits and model card.

    With several processes, the first one finishes the run. Raises `Stopped` (utils/signals.py) after SIGTERM
    or SIGINT during training, with everything saved.

    Args:
        config: A configuration, the name of a preset, or a TOML file.
        data: The manifest (CSV).
        out: The run folder to make.
        backbone_from: Another run, whose backbone training starts from.
        devices: Number of processes, one per device.
        accelerator: `auto`, `cpu`, `cuda` or `mps`.
        resume: Continue a run that was stopped; a finished run is left as it is.
        cache: Folder for cached maps that several runs share.

    Examples:
        >>> import protopyramid as pp                                               # doctest: +SKIP
        >>> config = pp.load_config("fpn-iaia-bl", {"train.seed": 1})               # doctest: +SKIP
        >>> run = pp.train(config, "data/manifest.csv", "runs/first", resume=True)  # doctest: +SKIP
        >>> run.folder.path, len(run.prototypes)                                    # doctest: +SKIP
        (PosixPath('runs/first'), 40)
    """
    from protopyramid.config import load_config
    from protopyramid.training.engine import train_run

    finished: list[Run] = []
    path = train_run(
        config if isinstance(config, Config) else load_config(config),
        as_path(data, "data"),
        as_path(out, "out"),
        backbone_from=backbone_from,
        devices=devices,
        accelerator=accelerator,
        resume=resume,
        cache=cache,
        finish=lambda folder: finished.append(finish(folder.path)),
    )
    return finished[0] if finished else load_run(path)


def finish(run: Run | Place) -> Run:
    """Write what a trained run still lacks: its scores, out-of-distribution limits, then its model card.

    Warns of unhealthy prototypes, and where they come from the image border, or from outside the annotation
    more than by chance.

    What is there already is left as it is, so a call that was stopped can be repeated.
    """
    import torch

    from protopyramid.inference.ood import limits_are_current
    from protopyramid.prototypes.health import head_warnings, source_pointing, source_warnings
    from protopyramid.reports.model_card import write_model_card

    run = _loaded(run)
    if run.config.train.threads:  # as in training: the number of threads can change the last digit
        torch.set_num_threads(run.config.train.threads)
    table = keep_scores(run)
    if not limits_are_current(run):
        _write_limits(run, table)
    if not (run.folder / layout.CARD).is_file():
        scores = None if table is None else table.train.scores
        for text in [*head_warnings(run, scores), *source_warnings(run, source_pointing(run))]:
            warnings.warn(text, stacklevel=2)
        write_model_card(run)
    return run


def keep_scores(run: Run) -> ScoreTable | None:
    """The scores of a run with prototypes, written if it lacks them; None where its images are gone."""
    from protopyramid.inference.ood import limits_digest
    from protopyramid.inference.score_table import read_scores, write_scores
    from protopyramid.prototypes.editing import score_table
    from protopyramid.runs.provenance import training_manifest

    if not run.prototypes:
        return None
    stored = read_scores(run)
    if stored is not None or training_manifest(run) is None:
        return stored
    with progress_bar("scoring training and validation images", announce=True) as update:
        table = score_table(run, progress=update)
    write_scores(run.folder, table, limits_digest(run), run.provenance.splits)
    return table


def _write_limits(run: Run, table: ScoreTable | None) -> None:
    """Write the out-of-distribution limits of a run, from its scores or else from its images."""
    from protopyramid.inference.ood import limits_digest, write_limits, write_threshold

    if table is None:
        with progress_bar("computing out-of-distribution limits", announce=True) as update:
            write_threshold(run, update)
    elif len(table.validation):
        write_limits(run.folder, table.limits(), limits_digest(run))


# -- results -------------------------------------------------------------------------------------
@checked_arguments
def evaluate(
    run: Run | Place,
    data: Place | EvaluatedSplit | None = None,
    split: str = "test",
    *,
    force: bool = False,
    bootstrap: int = 1000,
    seed: int = 0,
    colour_map: str = COLOUR_MAP,
    progress: Update | None = None,
    source: str = "",
) -> Evaluation:
    """Evaluate a run on a split: AUROC, calibration, and where its prototypes activate.

    Writes evaluation/SPLIT.json, SPLIT.csv and plots into the run folder; for the test split also the model
    card and report.html; for validation also the out-of-distribution limits.

    Args:
        run: A run, or its folder.
        data: The manifest, by default the one of training; or a split from `evaluation.split`.
        split: `train`, `validation` or `test`.
        force: Evaluate although the run was trained on some of the images; the result is marked as leaked.
        bootstrap: Number of resamples of the confidence intervals.
        seed: Seed of the resamples.
        colour_map: Matplotlib colormap of the report's heat maps.
        progress: Called with (images done, images in all).
        source: Only the rows of this dataset, in a manifest of several; the files are then called
            evaluation/SPLIT@SOURCE, and card and report stay as they are.

    Examples:
        >>> import protopyramid as pp                                      # doctest: +SKIP
        >>> result = pp.evaluate("runs/first")                             # doctest: +SKIP
        >>> result.auroc.mean, result.auroc.ci95                           # doctest: +SKIP
        (0.91, (0.88, 0.94))
        >>> result.to_json()["auroc"]["mean"]                              # doctest: +SKIP
        0.91
    """
    from protopyramid.evaluation.evaluate import evaluate_split
    from protopyramid.evaluation.split import EvaluatedSplit, evaluated_split

    check_count(bootstrap, "bootstrap", 1)
    run = _loaded(run)
    chosen = data
    if not isinstance(chosen, EvaluatedSplit):
        chosen = evaluated_split(run, chosen, split, force, source)
    result = evaluate_split(run, chosen, bootstrap, seed, progress)
    if chosen.key == "test":
        from protopyramid.reports.model_card import write_model_card
        from protopyramid.reports.report import write_report

        write_model_card(run, result)
        write_report(run, result, chosen.samples, colour_map)
    return result


def check_flags(run: Run, chosen: EvaluatedSplit, seed: int = 0) -> tuple[FlagRates, Path]:
    """Measure how many images of a split, and of synthetic ones, are flagged as out of distribution."""
    from protopyramid.evaluation.ood_check import flag_rates

    found = flag_rates(run, chosen, seed)
    return found, run.folder.write_json(layout.flags(chosen.key), found.to_json())


@checked_arguments
def faithfulness(
    run: Run | Place,
    data: Place | EvaluatedSplit | None = None,
    split: str = "test",
    *,
    images: int = 40,
    seed: int = 0,
    out: Place | None = None,
    progress: Update | None = None,
    tta: bool = True,
) -> tuple[Faithfulness, Path]:
    """Test whether the regions that explanations show are what the model used.

    Returns the result and the JSON file that it was written to.

    Args:
        run: A run, or its folder.
        data: The manifest, by default the one of training; or a split from `evaluation.split`.
        split: `train`, `validation` or `test`.
        images: Number of images drawn from the split; 0 means all.
        seed: Seed of images, random regions and resamples.
        out: The file to write, by default evaluation/SPLIT-faithfulness.json in the run folder.
        progress: Called with (images done, images in all).
        tta: With False, maps are those of the image alone, not the mean over test-time augmentation.
    """
    from protopyramid.evaluation.faithfulness import measure_faithfulness
    from protopyramid.evaluation.split import EvaluatedSplit, evaluated_split
    from protopyramid.utils.files import write_json

    run = _loaded(run)
    chosen = data if isinstance(data, EvaluatedSplit) else evaluated_split(run, data, split)
    found = measure_faithfulness(run, chosen, images, seed, progress=progress, tta=tta)
    if out is not None:
        write_json(Path(out), found.to_json())
        return found, Path(out)
    return found, run.folder.write_json(layout.faithfulness(chosen.key), found.to_json())


@checked_arguments
def predict(
    run: Run | Place,
    images: Place | Sequence[Place],
    *,
    split: str | None = None,
    regions: Sequence[Box] = (),
    regions_mm: Sequence[Box] = (),
    lesions: Sequence[Box] = (),
    crop: str | None = None,
    compile: bool = False,
    progress: Update | None = None,
    unreadable: Callable[[Path, UserError], None] | None = None,
) -> list[dict[str, Any]]:
    """Class probabilities, strongest prototypes and out-of-distribution flag of each image.

    Args:
        run: A run, or its folder.
        images: Image files, folders (searched with their subfolders), or one table (CSV) with a column
            `image`.
        split: Only the rows of this split of the table.
        regions: Regions of one image that the model is to see, each x0, y0, x1, y1 in pixels of the file; a
            region that is not square is made so around its centre.
        regions_mm: The same in millimetres from the upper left corner; needs a file with pixel spacing.
        lesions: Lesion boxes on one image in pixels of the file; the run's margin is added around them.
        crop: `lesion` cuts the lesion boxes of a table from their images, `none` ignores them; by default
            as in training.
        compile: Compile the network first, which pays for many images.
        progress: Called with (images done, images in all).
        unreadable: Called for an image that cannot be read, which is then left out; by default its error is
            raised.

    Examples:
        >>> import protopyramid as pp                                      # doctest: +SKIP
        >>> records = pp.predict("runs/first", ["lesion.png", "films/"])   # doctest: +SKIP
        >>> records[0]["predicted"], records[0]["unlike_training"]         # doctest: +SKIP
        ('spiculated', False)
    """
    from protopyramid.inference.prediction import predict_samples, with_labels
    from protopyramid.inference.requests import Marks, requested, table_of, warn_of_films

    paths = _paths(images)
    run = _loaded(run)
    request = requested(run, paths, split, Marks(regions, regions_mm, lesions), crop)
    if compile:
        compile_run(run)
    failed: dict[int, UserError] = {}  # by the sample's identity

    def leave_out(sample: Sample, error: UserError) -> None:
        assert unreadable is not None
        failed[id(sample)] = error
        unreadable(sample.image, error)

    handler = leave_out if unreadable is not None else None
    records = predict_samples(run, request.samples, progress, request.data, handler)
    if not records and failed:
        raise next(iter(failed.values()))
    warn_of_films(run, request)
    if table_of(paths, split) is None:
        return records
    return with_labels(records, [each for each in request.samples if id(each) not in failed])


def compile_run(run: Run) -> None:
    """Compile a run's network, or warn why it runs uncompiled."""
    from protopyramid.inference.batches import compile_network

    reason = compile_network(run.model, run.config.data.image_size)
    if reason is not None:
        warnings.warn(f"not compiled: {reason}; the network runs uncompiled", stacklevel=2)


@checked_arguments
def explain(
    run: Run | Place,
    image: Place,
    name: str | None = None,
    *,
    region: Box | None = None,
    evidence: bool | None = None,
    against: str | None = None,
) -> Explanation:
    """Explain one image: why this class and not another, as a sum over prototypes and their cases.

    Args:
        run: A run, or its folder.
        image: The image file.
        name: What the explanation calls the image; by default the file's name.
        region: What the model is to see, x0, y0, x1, y1 in pixels of the file; a region that is not square
            is made so around its centre. By default all of the image.
        evidence: Find the evidence regions of the strongest prototypes, by default if there are any: the
            smallest parts of the image that keep 90 % of the rise of their similarity.
        against: The class that the predicted one is compared with, by default the runner-up.

    Examples:
        >>> import protopyramid as pp                                      # doctest: +SKIP
        >>> explanation = pp.explain("runs/first", "lesion.png")           # doctest: +SKIP
        >>> explanation.predicted                                          # doctest: +SKIP
        'spiculated'
        >>> explanation.save("why.png")                                    # doctest: +SKIP
    """
    from protopyramid.explanations.explanation import explain_file

    return explain_file(_loaded(run), image, name, region, evidence, against)


@dataclass(frozen=True)
class SavedExplanation:
    """An explanation, the files it was written to, and its place among `total` images."""

    explanation: Explanation
    paths: list[Path]
    number: int
    total: int


@checked_arguments
def explain_all(
    run: Run | Place,
    images: Place | Sequence[Place],
    out: Place,
    *,
    split: str | None = None,
    regions: Sequence[Box] = (),
    regions_mm: Sequence[Box] = (),
    lesions: Sequence[Box] = (),
    crop: str | None = None,
    limit: int = 0,
    top: int = 5,
    colour_map: str = COLOUR_MAP,
    evidence: bool | None = None,
    against: str | None = None,
    formats: Sequence[str] = FORMATS,
    unreadable: Callable[[Path, UserError], None] | None = None,
) -> Iterator[SavedExplanation]:
    """Explain images one after the other and write each explanation to `out`, by default as PNG and JSON.

    Args:
        run: A run, or its folder.
        images: As in `predict`.
        out: The folder to write to.
        split: Only the rows of this split of the table.
        regions: As in `predict`.
        regions_mm: As in `predict`.
        lesions: As in `predict`.
        crop: As in `predict`.
        limit: The largest number of images; 0 means all.
        top: Number of prototypes in the figure.
        colour_map: Matplotlib colormap of the heat maps.
        evidence: Outline the evidence regions of the prototypes in the figure, by default if there are any.
        against: The class that the predicted one is compared with, by default the runner-up.
        formats: What to write: `png`, `pdf`, `svg` (the figure) and `json` (all numbers).
        unreadable: As in `predict`.
    """
    from protopyramid.explanations.contrast import check_class
    from protopyramid.explanations.explanation import explain_prepared
    from protopyramid.explanations.origin import open_sample
    from protopyramid.explanations.result import check_formats
    from protopyramid.figures.drawing import check_colour_map
    from protopyramid.inference.requests import Marks, requested, table_of

    folder = Path(out)
    check_output_folder(folder)
    check_colour_map(colour_map)
    paths = _paths(images)
    suffixes = check_formats(formats)
    run = _loaded(run)
    check_class(against, run.config.data.classes, "--against")
    request = requested(run, paths, split, Marks(regions, regions_mm, lesions), crop)
    samples = request.samples[:limit] if limit else request.samples
    in_table = table_of(paths, split) is not None
    names = [each.name if in_table else Path(each.name).name for each in samples]
    stems = distinct_stems(names)
    failed: list[UserError] = []
    for number, (sample, name, stem) in enumerate(zip(samples, names, stems, strict=True), 1):
        try:
            prepared, origin = open_sample(run, replace(sample, name=name), request.data)
        except UserError as error:
            if unreadable is None:
                raise
            failed.append(error)
            unreadable(sample.image, error)
            continue
        explanation = explain_prepared(run, prepared.image, name, origin).compared_with(against)
        explanation = explanation.outlined(evidence, top)
        paths_written = [folder / f"{stem}{suffix}" for suffix in suffixes]
        explanation.save_all(paths_written, top, colour_map)
        yield SavedExplanation(explanation, paths_written, number, len(samples))
    if len(failed) == len(samples) > 0:
        raise failed[0]


def distinct_stems(names: Sequence[str]) -> list[str]:
    """File names without suffix, each used once, also where a disk does not distinguish a from A.

    >>> distinct_stems(["x/a.png", "y/A.png", "a-2.png"])
    ['a', 'A-2', 'a-2-2']
    """
    taken: set[str] = set()
    stems = []
    for name in names:
        plain = Path(name).stem.encode()[:LONGEST_STEM].decode(errors="ignore")
        stem, number = plain, 2
        while stem.lower() in taken:
            stem, number = f"{plain}-{number}", number + 1
        taken.add(stem.lower())
        stems.append(stem)
    return stems


@checked_arguments
def compare(
    runs: Sequence[Run | Place],
    data: Place | None = None,
    split: str = "test",
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    progress: Update | None = None,
) -> Comparison:
    """Compare runs on the same images: AUROC with intervals and a paired test, and localisation.

    Runs that are not evaluated on the split yet are evaluated.

    Args:
        runs: Runs, or their folders; the others are tested against the first.
        data: One manifest for all; by default each run's own.
        split: `train`, `validation` or `test`.
        bootstrap: Number of resamples of intervals and test.
        seed: Seed of the resamples.
        progress: Called with (images done, images in all).

    Examples:
        >>> import protopyramid as pp                                      # doctest: +SKIP
        >>> comparison = pp.compare(["runs/first", "runs/vgg16"])          # doctest: +SKIP
        >>> print(comparison.markdown())                                   # doctest: +SKIP
        >>> comparison.write("comparison")                                 # doctest: +SKIP
    """
    from protopyramid.data.manifest import SPLITS
    from protopyramid.evaluation.comparison import compare as compare_runs
    from protopyramid.explanations.saliency import METHODS

    check_count(bootstrap, "bootstrap", 1)
    if split not in SPLITS:
        raise UserError(f'split: expected one of {", ".join(SPLITS)}, got "{split[:40]}"')
    if not isinstance(runs, Sequence) or isinstance(runs, str | bytes) or not runs:
        raise wrong_type("runs", "a list of runs or their folders", runs)
    loaded = [_loaded(run) for run in runs]
    _check_distinct(loaded)
    return compare_runs(loaded, data, split, bootstrap, seed, METHODS, progress)


@checked_arguments
def write_comparison(
    comparison: Comparison,
    runs: Sequence[Run],
    out: Place,
    *,
    data: Place | None = None,
    figures: bool = True,
    levels: Sequence[int] = (),
    colour_map: str = COLOUR_MAP,
) -> list[Path]:
    """Write a comparison's tables and, if its images still exist, its figures; returns the files.

    levels: for runs with prototypes on several levels, show the leading prototype of each of these; by
    default comparison.png shows the leading one of any level, teaser.png that of the finest.
    """
    from protopyramid.evaluation.comparison import same_images
    from protopyramid.reports import comparison as reports

    reports.check_levels(runs, levels)
    written = comparison.write(out)
    if not figures:
        return written
    chosen = same_images(runs[0], comparison.digest, data, comparison.split)
    if chosen is None:
        return written
    path, teaser = Path(out, "comparison.png"), Path(out, "teaser.png")
    written.append(
        reports.write_comparison(runs, chosen.samples, path, colour_map=colour_map, levels=levels)
    )
    if any(run is not None for run in reports.teaser_runs(runs)):
        written.append(reports.write_teaser(runs, chosen.samples, teaser, colour_map, levels))
    return written


@checked_arguments
def export(run: Run | Place, format: Format = "onnx", out: Place | None = None) -> Exported:
    """Export a run's model, from image to logits, scores and similarity maps, checked against torch.

    Args:
        run: A run, or its folder.
        format: `onnx` or `torch-export`.
        out: The file to write; by default export/NAME.onnx in the run folder.

    Examples:
        >>> import protopyramid as pp                                      # doctest: +SKIP
        >>> done = pp.export("runs/first")                                 # doctest: +SKIP
        >>> done.path, done.difference                                     # doctest: +SKIP
        (PosixPath('runs/first/export/first.onnx'), 9e-07)
    """
    from protopyramid.exporting import export_run

    return export_run(_loaded(run), format, None if out is None else Path(out))


@checked_arguments
def draw_architecture(source: Config | Place, out: Place) -> Path:
    """Draw the architecture of a configuration with its sizes and counts; gives the file.

    Args:
        source: A configuration, the name of a preset, a TOML file, or a run folder.
        out: The file to write: .png, .pdf or .svg.

    Examples:
        >>> from protopyramid import api                                       # doctest: +SKIP
        >>> api.draw_architecture("fpn-iaia-bl", "architecture.png")           # doctest: +SKIP
    """
    from protopyramid.config import load_config
    from protopyramid.reports.architecture import write_architecture
    from protopyramid.runs.folder import RunFolder
    from protopyramid.runs.shelf import find_run, model_names

    if isinstance(source, Config):
        return write_architecture(source, out)
    if not is_folder(Path(source)) and str(source) not in model_names():
        return write_architecture(load_config(source), out)
    folder = RunFolder(find_run(source))
    folder.check_format()
    return write_architecture(load_config(folder / layout.CONFIG, warn=False), out)


# -- prototypes ----------------------------------------------------------------------------------
@checked_arguments
def show_prototypes(
    run: Run | Place,
    data: Place | None = None,
    out: Place | None = None,
    *,
    nearest: int = 6,
    regions: bool = False,
    colour_map: str = COLOUR_MAP,
    bars: Bars = no_bar,
) -> list[Path]:
    """Draw the prototypes by class and level and, where the data is at hand, their nearest images.

    Writes prototypes_gallery.png, levels-CLASS.png for each class (its prototypes at one scale, with what
    they depend on), prototypes_nearest.json and prototypes_nearest_CLASS.png.

    Args:
        run: A run, or its folder.
        data: The manifest, by default the one of training.
        out: The folder to write to, by default the run folder.
        nearest: Number of nearest images per prototype and split.
        regions: Show in the gallery where each prototype activates (the strongest 5 % of its map) instead
            of the patch that it is.
        colour_map: Matplotlib colormap of the heat maps.
        bars: Shows the progress of each split.
    """
    from protopyramid.reports.gallery import write_gallery, write_levels, write_nearest
    from protopyramid.runs.provenance import samples_of, training_manifest

    run = _loaded(run)
    folder = run.folder.path if out is None else Path(out)
    known = data is not None or training_manifest(run) is not None
    found = {}
    # Before the first figure is drawn, so that bad data leaves none behind.
    for split in ("train", "test") if known else ():
        samples = samples_of(run, data, split)
        if samples:
            found[split] = _nearest(run, samples, nearest, split, bars)
    written = [write_gallery(run, folder, colour_map, regions), *write_levels(run, folder)]
    if not known:
        warnings.warn(
            f"{run.folder.path}: its training manifest no longer exists, so nearest images are left out; "
            "give one with --data MANIFEST",
            stacklevel=2,
        )
        return written
    return written + write_nearest(run, found, folder)


@checked_arguments
def prune(
    run: Run | Place,
    data: Place | None = None,
    out: Place | None = None,
    *,
    remove: Sequence[int] = (),
    nearest: int = 6,
    least: int = 3,
    bars: Bars = no_bar,
) -> Edited | None:
    """Write a finished run without some prototypes, with its head fitted again; None if all are kept.

    Args:
        run: A run, or its folder.
        data: The manifest, by default the one of training.
        out: The new run folder, by default RUN-pruned.
        remove: Indices of the prototypes to remove; by default those whose nearest images are of other
            classes.
        nearest: Number of nearest training images looked at.
        least: Minimum number of same-class images among them that a prototype needs to be kept.
        bars: Shows the progress of the search.
    """
    from protopyramid.prototypes.neighbours import misplaced
    from protopyramid.prototypes.pruning import kept_prototypes
    from protopyramid.runs.provenance import samples_of

    run = _loaded(run)
    beside = run.folder.path if run.package is None else Path(run.name)
    folder = Path(f"{beside}-pruned" if out is None else out)
    train = samples_of(run, data, "train")
    removed = list(remove) or misplaced(run, _nearest(run, train, nearest, "train", bars), least)
    if not removed:
        return None
    kept_prototypes(run, removed)  # refused before anything is computed
    return edit(run, remove=removed, data=data, out=folder, bars=bars)


@dataclass(frozen=True)
class Edited:
    """What an edit does, and the run that it made; None where nothing was written."""

    plan: EditPlan
    run: Run | None


@checked_arguments
def edit(
    run: Run | Place,
    *,
    remove: Sequence[int] = (),
    require: Sequence[int] | Required = (),
    weights: Weights | None = None,
    data: Place | None = None,
    out: Place | None = None,
    bars: Bars = no_bar,
) -> Edited:
    """Remove or require prototypes, with the head fitted again, or choose weights by hand.

    Without `out`, nothing is written: the plan tells what the edit would do. The new run is complete, and
    its data.json and model card tell what was done. It appears whole or not at all.

    Args:
        run: A run, or its folder.
        remove: Indices of the prototypes to remove.
        require: Indices of prototypes to keep in use: their weight for their own class is at least the one
            they start training with; or {index: least weight}. Earlier requirements of the run hold as well.
        weights: {prototype: {class: weight}} chosen by hand. The others stay as they are; nothing is fitted.
        data: The manifest, by default the scores that the run keeps, or its manifest.
        out: The new run folder.
        bars: Shows the progress where images have to be scored first.

    Examples:
        >>> import protopyramid as pp                                          # doctest: +SKIP
        >>> edited = pp.load_run("runs/first").edit(remove=[7, 12])            # doctest: +SKIP
        >>> edited.plan.loss_increase, len(edited.plan.changes)                # doctest: +SKIP
        (0.012, 3)
    """
    run = _loaded(run)
    if out is not None:
        check_output_folder(Path(out), empty=True)
    plan = plan_edit(run, remove=remove, require=require, weights=weights, data=data, bars=bars)
    return Edited(plan, None if out is None else write_edit(run, plan, out, data=data))


@checked_arguments
def plan_edit(
    run: Run | Place,
    *,
    remove: Sequence[int] = (),
    require: Sequence[int] | Required = (),
    weights: Weights | None = None,
    data: Place | None = None,
    bars: Bars = no_bar,
) -> EditPlan:
    """What an edit would do, as in `edit`; nothing is written."""
    from protopyramid.prototypes.editing import editor_of

    with bars("scoring images") as update:
        editor = editor_of(_loaded(run), data, update)
    return editor.plan(remove, require, weights)


def write_edit(run: Run, plan: EditPlan, out: Place, *, data: Place | None = None) -> Run:
    """Write the run of a plan and finish it as any other; the folder appears whole or not at all."""
    from protopyramid.prototypes import edited_run
    from protopyramid.prototypes.editing import editor_of
    from protopyramid.runs.folder import RunFolder
    from protopyramid.runs.provenance import write_provenance
    from protopyramid.utils.staging import building

    with building(Path(out)) as stage:
        folder = RunFolder(stage)
        edited_run.write_edit(run, plan, editor_of(run, data).table, folder)
        made = finish(folder.path)
        if (folder / layout.DATA).is_file():
            write_provenance(folder, made.provenance.moved(stage, Path(out)))
    return load_run(out)


def _nearest(
    run: Run, samples: Sequence[Sample], count: int, split: str, bars: Bars
) -> list[list[Neighbour]]:
    from protopyramid.prototypes.neighbours import nearest_images

    with bars(f"nearest images in {split}") as update:
        return nearest_images(run, samples, count, update)


# -- arguments -----------------------------------------------------------------------------------
def _loaded(run: Run | Place) -> Run:
    return run if isinstance(run, Run) else load_run(as_path(run, "run"))


def _check_distinct(runs: Sequence[Run]) -> None:
    """Refuse a run that is given twice."""
    seen: set[Path] = set()
    for run in runs:
        path = real_path(run.folder.path)
        if path in seen:
            raise UserError(f"{run.folder.path}: this run is given twice; give each run once")
        seen.add(path)


def _paths(images: Place | Sequence[Place]) -> list[Path]:
    return paths_of(images, "images")
