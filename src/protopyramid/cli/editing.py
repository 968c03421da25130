"""What `protopyramid prototypes --remove --require --bound` prints."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer.core

if TYPE_CHECKING:
    from protopyramid.prototypes.editing import (
        Change,
        EditPlan,
        HeadEditor,
        NearOptimalHeads,
    )
    from protopyramid.runs.run import Run

NUMBERS = ("--remove", "--require")
MOST_CHANGES = 20  # lines; the rest is counted


class NumbersCommand(typer.core.TyperCommand):
    """A command whose options of numbers take several: `--remove 7 12` is `--remove 7,12`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join the numbers after such an option before anything else is parsed."""
        return super().parse_args(ctx, join_numbers(args))


def join_numbers(arguments: Sequence[str]) -> list[str]:
    """The arguments with all numbers after an option of numbers, or after its repeats, as one.

    >>> join_numbers(["RUN", "--remove", "7", "12", "--require", "3", "--remove=5"])
    ['RUN', '--remove', '7,12,5', '--require', '3']
    """
    joined: list[str] = []
    values: dict[str, int] = {}  # where the value of an option is
    option = None
    for argument in _split(arguments):
        if option and argument.replace(",", "").isdecimal():
            if option in values:
                joined[values[option]] += f",{argument}"
            else:
                values[option] = len(joined) + 1
                joined += [option, argument]
            continue
        if option and option not in values:
            joined.append(option)  # without a number: the parser says what it expects
        option = argument if argument in NUMBERS else None
        if not option:
            joined.append(argument)
    return joined if option is None or option in values else [*joined, option]


def _split(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--remove=7` as two."""
    found: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        found += [name, value] if equals and name in NUMBERS else [argument]
    return found


def say_plan(run: "Run", plan: "EditPlan") -> None:
    """Tell what an edit would do: the loss, the metrics, the predictions that change."""
    from protopyramid.cli.console import say

    for index in plan.removed:
        say(f"removed prototype {_described(run, index)}")
    for index, least in plan.required.items():
        place = plan.kept.index(index)
        row = run.config.data.classes.index(run.prototypes[index].class_name)
        weight = float(plan.weight[row, place])
        say(
            f"required prototype {_described(run, index)}: weight for its own class at least {least:g}, "
            f"fitted {weight:.2f}"
        )
    say(
        f"{len(plan.removed)} of {len(run.prototypes)} prototypes removed, head fitted again"
        + ("" if plan.exact else " (not to convergence: see head_fit.ridge)")
    )
    say(
        f"best achievable loss {plan.after.loss:.4f}, {plan.loss_increase:+.4f} against {plan.best:.4f}; "
        f"cross entropy {plan.before.cross_entropy:.4f} before, {plan.after.cross_entropy:.4f} after"
    )
    _say_validation(plan)
    say_changes(plan.changes, plan.images)


def _say_validation(plan: "EditPlan") -> None:
    from protopyramid.cli.console import say

    before, after = plan.before.validation, plan.after.validation
    if before is None or after is None:
        say("metrics on validation are unknown: there are no validation rows")
        return
    say(f"validation AUROC {figure(before.auroc)} before, {figure(after.auroc)} after")
    say(f"validation accuracy {figure(before.accuracy)} before, {figure(after.accuracy)} after")


def say_changes(changes: Sequence["Change"], images: int) -> None:
    """Tell which predictions change."""
    from protopyramid.cli.console import say

    say(f"{len(changes)} of {images} predictions change" + (":" if changes else ""))
    for change in changes[:MOST_CHANGES]:
        say(f"  {change.image}: {change.before} -> {change.after} (labelled {change.label})")
    if len(changes) > MOST_CHANGES:
        say(f"  and {len(changes) - MOST_CHANGES} more")


def say_bound(run: "Run", editor: "HeadEditor", bound: float) -> None:
    """List the prototypes that could go alone within a bound, and describe the near-optimal heads."""
    from protopyramid.cli.console import say, show_table

    whole = editor.judge(editor.everything, editor.best().weight)
    costs = sorted(editor.removal_costs(), key=lambda cost: cost.loss_increase)
    could = [each for each in costs if each.loss_increase <= bound and not each.last_of_its_class]
    say(
        f"best loss {whole.loss:.4f} (cross entropy {whole.cross_entropy:.4f}) with all "
        f"{len(costs)} prototypes; validation AUROC {figure(whole.auroc)}"
    )
    say(f"{len(could)} prototypes could go alone within {bound:g} of it, each by an exact fit:")
    rows = []
    for cost in could:
        record = run.prototypes[cost.index]
        change = "undefined" if cost.auroc_change is None else f"{cost.auroc_change:+.3f}"
        rows.append(
            [
                f"{cost.index}",
                record.class_name,
                f"{record.level}",
                f"{cost.loss_increase:+.4f}",
                f"{cost.cross_entropy_increase:+.4f}",
                change,
                f"{len(cost.changes)}",
            ]
        )
    if rows:
        header = ["prototype", "class", "level", "loss", "cross entropy", "AUROC", "changed"]
        show_table(header, rows)
    if not all(cost.exact for cost in costs):
        say("some fits did not converge: without a ridge (head_fit.ridge) there may be no optimum")
    found = editor.near_optimal(bound)
    if found is None:
        say("near-optimal heads: without a ridge (head_fit.ridge) nothing bounds them")
    else:
        _say_near_optimal(run, found)


def _say_near_optimal(run: "Run", found: "NearOptimalHeads") -> None:
    from protopyramid.cli.console import say, show_table

    say(
        f"heads within {found.bound:g} of the best loss: an ellipsoid in {found.free} of {found.weights} "
        "weights (the others are held at zero by the L1 term, or by a requirement)"
    )
    rows = [
        [
            f"{each.index}",
            run.prototypes[each.index].class_name,
            f"{each.weight:.2f}",
            f"{each.low:.2f} to {each.high:.2f}",
            f"{each.rise_at_low:.4f}, {each.rise_at_high:.4f}",
            f"{each.removal_estimate:+.4f}",
            f"{each.removal_exact:+.4f}",
        ]
        for each in found.prototypes
    ]
    header = [
        "prototype",
        "class",
        "own weight",
        "range",
        "exact loss at its ends",
        "removal, ellipsoid",
        "removal, exact",
    ]
    show_table(header, rows)
    least, most = found.rises
    total, different = len(found.prototypes), list(found.disagreements)
    say(
        f"ellipsoid against exact fits: the same answer for {total - len(different)} of {total} removals"
        + (f", another for {', '.join(map(str, different))}" if different else "")
        + f"; the loss of a removal differs by at most {found.largest_error:.4f}; at the ends of the ranges "
        f"it rises by {least:.4f} to {most:.4f}, where the ellipsoid says {found.bound:.4f}"
    )


def figure(value: float | None) -> str:
    """A metric with three digits."""
    return "undefined" if value is None else f"{value:.3f}"


def _described(run: "Run", index: int) -> str:
    record = run.prototypes[index]
    return f"{index}: {record.class_name}, level {record.level}, from {record.image}"
