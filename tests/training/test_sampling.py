"""What an epoch draws: the same for the same seed, balanced, and with annotated images in every batch."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protopyramid.config.schema import DataConfig, NegativesConfig
from protopyramid.training.sampling import Draw, epoch_batches, training_pool

LABELS = np.array([0] * 30 + [1] * 12 + [2] * 5 + [3] * 40)
ANNOTATED = (np.arange(len(LABELS)) % 9 == 0) & (LABELS != 3)


def data(**options: object) -> DataConfig:
    return DataConfig.model_validate({"negatives": {"count": 0}, **options})


def batches(seed: int = 0, epoch: int = 0, size: int = 16, **options: object) -> list[Draw]:
    return epoch_batches(LABELS, ANNOTATED, data(**options), size, seed, epoch)


def flat(draws: list[Draw]) -> list[int]:
    return [index for draw in draws for index in draw.images.tolist()]


def test_an_epoch_depends_on_seed_and_number_alone() -> None:
    assert flat(batches(1, 2)) == flat(batches(1, 2))
    assert flat(batches(1, 2)) != flat(batches(1, 3))
    assert flat(batches(1, 2)) != flat(batches(2, 2))


def test_unbalanced_epochs_draw_every_image_once() -> None:
    assert sorted(flat(batches(balance="none"))) == list(range(len(LABELS)))


def test_balanced_epochs_draw_every_class_equally_often() -> None:
    drawn = Counter(LABELS[flat(batches())].tolist())
    assert set(drawn.values()) == {-(-len(LABELS) // 4)}
    # Nothing of a small class is left out, and nothing is drawn much more often than the rest.
    often = Counter(index for index in flat(batches()) if LABELS[index] == 2)
    assert len(often) == 5
    assert max(often.values()) - min(often.values()) <= 1


def test_every_balanced_batch_holds_every_class() -> None:
    for draw in batches():
        counts = np.bincount(LABELS[draw.images], minlength=4)
        assert counts.max() - counts.min() <= 2
        assert counts.min() >= 1


@given(n=st.integers(1, 60), size=st.integers(1, 70), balanced=st.booleans())
@settings(max_examples=60, deadline=None)
def test_batches_differ_in_size_by_at_most_one(n: int, size: int, balanced: bool) -> None:
    labels = np.arange(n) % 3
    setting = data(balance="class" if balanced else "none")
    draws = epoch_batches(labels, np.zeros(n, bool), setting, size, 0, 0)
    sizes = [len(draw.images) for draw in draws]
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


@given(share=st.floats(0.05, 0.5), seed=st.integers(0, 20))
@settings(max_examples=40, deadline=None)
def test_annotated_images_make_up_their_share_of_every_batch(share: float, seed: int) -> None:
    for draw in batches(seed, annotated_share=share):
        assert ANNOTATED[draw.images].mean() >= share - 1e-9


def test_a_batch_grows_at_most_twofold_for_its_annotated_share() -> None:
    for draw in batches(annotated_share=1.0):
        assert len(draw.images) <= 32
        assert ANNOTATED[draw.images].mean() >= 0.5


def test_without_annotated_images_batches_stay_as_they_are() -> None:
    none = np.zeros_like(ANNOTATED)
    with_share = epoch_batches(LABELS, none, data(annotated_share=0.5), 16, 0, 0)
    assert flat(with_share) == flat(batches())


def test_repeats_count_the_earlier_draws_of_an_image() -> None:
    seen: Counter[int] = Counter()
    for draw in batches(annotated_share=0.4):
        for index, repeat in zip(draw.images.tolist(), draw.repeats.tolist(), strict=True):
            assert repeat == seen[index]
            seen[index] += 1
    assert max(seen.values()) > 1


def negatives_of(epoch: int, resample: str, seed: int = 0) -> set[int]:
    setting = DataConfig(negatives=NegativesConfig(count=10, resample=resample))
    pool = training_pool(LABELS, setting, seed, epoch)
    assert set(range(47)) <= set(pool.tolist())
    return {index for index in pool.tolist() if LABELS[index] == 3}


def test_negatives_are_drawn_once_for_the_run_or_anew_each_epoch() -> None:
    assert len(negatives_of(0, "once")) == 10
    assert negatives_of(0, "once") == negatives_of(5, "once")
    assert negatives_of(0, "once") != negatives_of(0, "once", seed=1)
    assert negatives_of(0, "epoch") != negatives_of(1, "epoch")
    assert negatives_of(1, "epoch") == negatives_of(1, "epoch")


@pytest.mark.parametrize(
    "setting",
    [
        DataConfig(negatives=NegativesConfig(count=0)),
        DataConfig(negatives=NegativesConfig(count=40)),
        DataConfig(classes=["a", "b", "c", "d"], negative_class=""),
    ],
)
def test_all_images_are_used_where_negatives_are_few_or_unnamed(setting: DataConfig) -> None:
    assert training_pool(LABELS, setting, 0, 0).tolist() == list(range(len(LABELS)))


def test_pairs_of_source_and_class_are_drawn_equally_often() -> None:
    sources = (np.arange(len(LABELS)) % 10 == 0).astype(np.int64)  # few of the second source
    draws = epoch_batches(LABELS, ANNOTATED, data(balance="source-class"), 16, 3, 1, sources)
    drawn = flat(draws)
    pairs = Counter(zip(sources[drawn].tolist(), LABELS[drawn].tolist(), strict=True))
    present = set(zip(sources.tolist(), LABELS.tolist(), strict=True))
    assert set(pairs) == present
    assert set(pairs.values()) == {-(-len(LABELS) // len(present))}
    for draw in draws:
        groups = {(sources[index], LABELS[index]) for index in draw.images}
        assert len(groups) == len(present)


def test_sources_change_nothing_unless_they_are_balanced() -> None:
    sources = (np.arange(len(LABELS)) % 3).astype(np.int64)
    for balance in ("none", "class"):
        settings_ = data(balance=balance)
        plain = epoch_batches(LABELS, ANNOTATED, settings_, 16, 0, 0)
        assert flat(plain) == flat(epoch_batches(LABELS, ANNOTATED, settings_, 16, 0, 0, sources))
    single = data(balance="source-class")
    one = np.zeros(len(LABELS), np.int64)
    assert flat(epoch_batches(LABELS, ANNOTATED, single, 16, 0, 0, one)) == flat(batches())
