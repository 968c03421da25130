"""`protopyramid models`: models by name; packing one, fetching one, putting its pictures back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protopyramid.cli.help import Help
from protopyramid.cli.options import Split
from protopyramid.errors import UserError

if TYPE_CHECKING:
    from protopyramid.runs.package import Package
    from protopyramid.runs.shelf import Model
    from protopyramid.sharing.cost import Cost

app = typer.Typer(rich_markup_mode=None)
RUN_HELP = "Run folder, or the name of a model."
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of a model.")]


@app.callback(invoke_without_command=True, add_help_option=False)
def models(context: typer.Context, help: Help = False) -> None:
    """List the models, or pack, pull, show, attach, measure or remove one.

    A name from the list can be given to every command in place of a run folder.
    """
    if context.invoked_subcommand is not None:
        return
    from protopyramid.cli.console import say, say_on_stderr
    from protopyramid.runs.shelf import find_model, model_names
    from protopyramid.sharing.pull import read_catalogue

    for name in model_names():
        model = find_model(name)
        if model is not None:
            say(_line(model))
    known = set(model_names())
    for offer in read_catalogue():
        if offer.name not in known:
            say(f"{offer.name:<16}[to pull] {offer.summary or offer.url}")
    if not known:
        say_on_stderr("no models; fetch one with: protopyramid models pull NAME|URL|FILE")


def _line(model: "Model") -> str:
    about = model.about
    kind = "shipped" if model.shipped else "pulled"
    return f"{model.name:<16}[{kind}] {about.summary} ({_facts(about)})"


def _facts(about: "Package") -> str:
    version = f"version {about.version}, " if about.version else ""
    weights = "8-bit weights, " if about.weights == "int8" else ""
    pictures = "with pictures" if about.pictures else "without pictures"
    return f"{version}{weights}{pictures}, {about.total_bytes / 1e6:.1f} MB"


@app.command()
def show(name: NameArgument) -> None:
    """Print what a model is, where it is, its digests, and its card."""
    from protopyramid.cli.console import say, say_lines
    from protopyramid.runs import layout
    from protopyramid.runs.package import read_package
    from protopyramid.runs.run import load_run
    from protopyramid.utils.opening import TEXT, read_text

    run = load_run(name)
    about = read_package(run.folder)
    if about is not None:
        say(f"{run.name}: {about.summary}")
        say(_facts(about))
        say(f"licence: {about.licence or 'not stated'}")
        say(f"weights: SHA-256 {about.files[layout.MODEL].sha256}")
        there = sum(run.cases.has_picture(record.index) for record in run.prototypes)
        if there and not about.pictures:
            say(f"attached here: the pictures of {there} of {len(run.prototypes)} cases")
    say(f"folder: {run.folder.path}")
    if (run.folder / layout.CASES_MANIFEST).is_file():
        say(f"example images: {run.folder / layout.CASES}")
    card = run.folder / layout.CARD
    if card.is_file():
        try:
            say_lines(f"\n{read_text(card, TEXT)}".rstrip())
        except UnicodeDecodeError as error:
            raise UserError(
                f"{card}: byte {error.start} is not UTF-8 text; save the card as UTF-8"
            ) from None


@app.command()
def pack(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN_HELP)],
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write, as in margins.zip.")],
    name: Annotated[str, typer.Option(help="Name of the model, by default the run's.")] = "",
    version: Annotated[str, typer.Option(help="Version of the model.")] = "1",
    summary: Annotated[str, typer.Option(help="One line for the list of models.")] = "",
    licence: Annotated[str, typer.Option(help="Licence of weights and pictures.")] = "",
    without_pictures: Annotated[
        bool,
        typer.Option("--without-pictures", help="Leave out every picture of a training case."),
    ] = False,
    anonymous_names: Annotated[
        bool,
        typer.Option(
            "--anonymous-names", help="Number the training images instead of naming them."
        ),
    ] = False,
    bits: Annotated[int, typer.Option(help="Bits of the weights: 32, or 8 for a quarter.")] = 32,
    cases: Annotated[
        Path | None,
        typer.Option(
            metavar="MANIFEST", help="Add a few test images of this manifest as examples."
        ),
    ] = None,
    card: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Model card to use instead of the run's.")
    ] = None,
    licence_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Full text of the licence.")
    ] = None,
) -> None:
    """Pack a finished run into one file: weights, prototypes, settings, results, card."""
    from protopyramid.cli.console import say
    from protopyramid.runs.archive import archive_digest
    from protopyramid.runs.run import load_run
    from protopyramid.sharing.pack import PackOptions
    from protopyramid.sharing.pack import pack as pack_run

    options = PackOptions(
        name=name,
        version=version,
        summary=summary,
        licence=licence,
        pictures=not without_pictures,
        anonymous=anonymous_names,
        bits=bits,
        cases=cases,
        card=card,
        licence_file=licence_file,
    )
    about = pack_run(load_run(run), out, options)
    say(f"{out}  {about.name}: {_facts(about)}, {len(about.files) + 1} files")
    say(f"SHA-256 {archive_digest(out)}")


@app.command()
def pull(
    source: Annotated[
        str, typer.Argument(metavar="NAME|URL|FILE", help="Name, address or file of a model.")
    ],
    name: Annotated[str, typer.Option(help="What to call it, by default as it calls itself.")] = "",
    sha256: Annotated[str, typer.Option(metavar="HEX", help="Digest the file must have.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a model of that name.")] = False,
) -> None:
    """Fetch a packed model into the cache folder (PROTOPYRAMID_CACHE)."""
    from protopyramid.cli.console import say
    from protopyramid.sharing.pull import pull as pull_model
    from protopyramid.utils.progress import progress_bar

    found = pull_model(source, name=name, sha256=sha256, force=force, bars=progress_bar)
    say(_line(found))
    if not sha256 and "://" in source:
        say("its digest was not checked against one from elsewhere: give --sha256 HEX for that")


@app.command()
def attach(
    name: NameArgument,
    data: Annotated[Path, typer.Option(metavar="MANIFEST", help="Table (CSV) of the images.")],
) -> None:
    """Put the pictures of cases back into a model that was shared without them."""
    from protopyramid.cli.console import say
    from protopyramid.runs.run import load_run
    from protopyramid.sharing.attach import attach as attach_pictures

    run = load_run(name)
    done = attach_pictures(run, data)
    new = len(done.by_digest) + len(done.by_name)
    say(f"{run.name}: {new} pictures attached, {len(done.by_digest)} of them by digest")
    if done.there:
        say(f"{len(done.there)} were there already")
    if done.missing:
        say(f"{len(done.missing)} cases are not in {data}: their places are shown in words")


@app.command()
def cost(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders, e.g. of folds.")],
    data: Annotated[
        Path | None,
        typer.Option(metavar="MANIFEST", help="One manifest for all, by default each run's own."),
    ] = None,
    split: Split = "test",
    most: Annotated[
        float | None,
        typer.Option(metavar="AUROC", help="Fail where the mean AUROC falls by more than this."),
    ] = None,
) -> None:
    """Print what 8-bit weights cost: AUROC and predictions of the full and the packed model."""
    from protopyramid.runs.run import load_run
    from protopyramid.sharing.cost import eight_bit_cost
    from protopyramid.utils.progress import progress_bar

    found = eight_bit_cost([load_run(run) for run in runs], data, split, progress_bar)
    _show_cost(found)
    if most is not None and (found.difference is None or found.difference > most):
        lost = "unknown" if found.difference is None else f"{found.difference:.4f}"
        raise UserError(f"8-bit weights cost {lost} of AUROC, more than --most {most:g}")


def _show_cost(found: "Cost") -> None:
    from protopyramid.cli.console import say, show_table

    def figure(value: float | None) -> str:
        return "undefined" if value is None else f"{value:.4f}"

    rows = []
    for name, before in found.full.items():
        after = found.packed[name]
        lost = "" if before is None or after is None else f"{after - before:+.4f}"
        rows.append([name, figure(before), figure(after), lost])
    show_table(["AUROC", "32 bits", "8 bits", "change"], rows)
    say(
        f"{found.images} images: {found.changed} get another class; probabilities change by at most "
        f"{found.largest:.4f}; weights {found.full_bytes / 1e6:.1f} MB, packed "
        f"{found.packed_bytes / 1e6:.1f} MB"
    )


@app.command()
def card(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN_HELP)],
    words: Annotated[Path, typer.Option(metavar="TOML", help="What the card says in words.")],
    data: Annotated[Path, typer.Option(metavar="MANIFEST", help="Manifest of run and folds.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write (Markdown).")],
    crossval: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of a cross-validation.")
    ] = None,
    folds: Annotated[
        list[Path] | None,
        typer.Option(
            "--fold", metavar="RUN", help="Or a run of a study, or what is kept of it; repeat."
        ),
    ] = None,
) -> None:
    """Write the card of a model to publish: figures out of fold by class and source, data, limits."""
    from protopyramid.cli.console import say
    from protopyramid.runs.run import load_run
    from protopyramid.sharing.release_card import (
        of_crossval,
        of_run,
        read_words,
        release_card,
        together,
    )
    from protopyramid.studies.kept import is_kept, kept_predictions
    from protopyramid.utils.files import write_text

    if (crossval is None) == (not folds):
        raise UserError("models card: give either --crossval DIR, or --fold RUN for each fold")
    model = load_run(run)
    if crossval is None:
        predictions = together(
            {
                fold: kept_predictions(fold, model)
                if is_kept(fold)
                else of_run(model, load_run(fold))
                for fold in folds or ()
            }
        )
    else:
        predictions = of_crossval(model, data, crossval)
    say(str(write_text(out, release_card(model, read_words(words), data, predictions))))


@app.command()
def remove(name: NameArgument) -> None:
    """Remove a pulled model from the cache folder."""
    from protopyramid.cli.console import say
    from protopyramid.runs.shelf import remove_model

    say(f"removed {remove_model(name)}")
