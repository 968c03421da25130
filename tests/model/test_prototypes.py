"""The prototype layer: any count per class and level, scores and closeness from loops."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from protopyramid.model.pooling import Pooling
from protopyramid.model.prototypes import PrototypeLayer, classes_and_levels
from protopyramid.model.similarity import Similarity

DIM = 4
SIZES = {2: (6, 5), 3: (4, 3), 4: (2, 3), 5: (2, 2)}
SYSTEMS = [
    (Similarity(), Pooling(k=5)),
    (Similarity(relu=True), Pooling(k=0.3)),
    (Similarity(), Pooling(kind="topk", k={2: 7, 5: 2})),
    (Similarity(), Pooling(kind="max")),
    (Similarity(), Pooling(kind="average")),
    (Similarity(kind="log-l2"), Pooling(kind="topk", k=3)),
    (Similarity(kind="log-l2", squared=True), Pooling(kind="max")),
    (Similarity(kind="log-l2"), Pooling(kind="focal", k=3)),
]


def pyramid(batch=2, seed=0, levels=(2, 3, 4, 5)):
    g = torch.Generator().manual_seed(seed)
    return {level: torch.randn(batch, DIM, *SIZES[level], generator=g) for level in levels}


def cells_in_top(pooling, level):
    """k, from the words of the configuration."""
    cells = SIZES[level][0] * SIZES[level][1]
    k = pooling.k.get(level, 9) if isinstance(pooling.k, dict) else pooling.k
    return min(cells, k if isinstance(k, int) else max(1, round(k * cells)))


def by_hand(z, vector, level, similarity, pooling):
    """Map, score and closeness of one image and one prototype."""
    patches = [
        [z[:, y, x].tolist() for x in range(z.shape[2])] for y in range(z.shape[1])
    ]  # rows of patches
    k = 1 if pooling.kind == "max" else cells_in_top(pooling, level)
    if similarity.kind == "cosine":

        def compare(a):
            dot = sum(p * q for p, q in zip(a, vector, strict=True))
            cosine = dot / (math.hypot(*a) * math.hypot(*vector))
            return max(cosine, 0.0) if similarity.relu else cosine

        maps = [[compare(a) for a in row] for row in patches]
        closeness = sum(sorted((s for row in maps for s in row), reverse=True)[:k]) / k
    else:
        power = 2 if similarity.squared else 1
        distances = [[math.dist(a, vector) ** power for a in row] for row in patches]
        maps = [[math.log((d + 1) / (d + 1e-4)) for d in row] for row in distances]
        closeness = -sum(sorted(d for row in distances for d in row)[:k]) / k
    cells = sorted((s for row in maps for s in row), reverse=True)
    top, mean = sum(cells[:k]) / k, sum(cells) / len(cells)
    score = {"focal": top - mean, "topk": top, "max": cells[0], "average": mean}[pooling.kind]
    return maps, score, closeness


@pytest.mark.parametrize(("similarity", "pooling"), SYSTEMS)
def test_maps_scores_and_closeness_equal_a_loop(similarity, pooling):
    layer = PrototypeLayer(
        *classes_and_levels({0: {2: 2, 5: 1}, 1: {3: 1, 4: 2}}), DIM, similarity, pooling
    )
    z = pyramid()
    scores, closeness, maps = layer(z)
    placed = dict.fromkeys(maps, 0)
    for j, (level, vector) in enumerate(
        zip(layer.levels.tolist(), layer.vectors.tolist(), strict=True)
    ):
        for i in range(2):
            expected, score, close = by_hand(z[level][i], vector, level, similarity, pooling)
            ours = maps[level][i, placed[level]]
            torch.testing.assert_close(ours, torch.tensor(expected), rtol=1e-5, atol=1e-5)
            assert scores[i, j].item() == pytest.approx(score, rel=1e-4, abs=1e-5)
            assert closeness[i, j].item() == pytest.approx(close, rel=1e-5, abs=1e-5)
        placed[level] += 1


@pytest.mark.parametrize(("similarity", "pooling"), SYSTEMS)
def test_similarity_map_alone_is_the_same_map(similarity, pooling):
    layer = PrototypeLayer(*classes_and_levels({0: {3: 2}}), DIM, similarity, pooling)
    z = pyramid()
    assert torch.equal(layer.similarity_map(z[3], layer.vectors), layer(z)[2][3])


@pytest.mark.parametrize(
    "counts",
    [
        {0: {2: 3, 3: 1, 4: 0, 5: 2}, 1: {2: 1, 5: 4}, 2: {3: 2}},  # uneven, with gaps
        {0: {3: 2}, 1: {3: 1}},  # one level alone
        {0: {5: 1}, 1: {}},  # a class without prototypes
        {0: {2: 1}, 1: {3: 1}, 2: {4: 1}, 3: {5: 1}},  # a level for each class
    ],
)
def test_any_count_per_class_and_level(counts):
    layer = PrototypeLayer(*classes_and_levels(counts), DIM)
    expected = [
        (level, number)
        for level in (2, 3, 4, 5)
        for number in sorted(counts)
        for _ in range(counts[number].get(level, 0))
    ]
    pairs = list(zip(layer.levels.tolist(), layer.classes.tolist(), strict=True))
    assert pairs == expected, "ordered by level, then class"
    assert layer.vectors.shape == (len(expected), DIM)
    levels = sorted({level for level, _ in expected})
    scores, closeness, maps = layer(pyramid(levels=levels))
    assert scores.shape == closeness.shape == (2, len(expected))
    assert {level: tuple(x.shape) for level, x in maps.items()} == {
        level: (2, sum(lv == level for lv, _ in expected), *SIZES[level]) for level in levels
    }


@settings(max_examples=25, deadline=None)
@given(
    counts=st.dictionaries(
        st.integers(0, 4),
        st.dictionaries(st.sampled_from([2, 3, 4, 5]), st.integers(0, 3)),
        min_size=1,
    ).filter(lambda c: any(n for by_level in c.values() for n in by_level.values()))
)
def test_columns_of_the_scores_belong_to_the_maps_of_their_level(counts):
    layer = PrototypeLayer(*classes_and_levels(counts), DIM, Similarity(), Pooling(kind="max"))
    scores, _, maps = layer(pyramid())
    joined = torch.cat([maps[level].amax((2, 3)) for level in sorted(maps)], dim=1)
    assert torch.equal(scores, joined)
    assert sorted(maps) == sorted(set(layer.levels.tolist()))


def test_class_and_level_travel_with_the_weights():
    layer = PrototypeLayer(*classes_and_levels({0: {2: 1}, 1: {5: 1}}), DIM)
    assert set(layer.state_dict()) == {"vectors", "classes", "levels"}
    assert layer.classes.dtype == layer.levels.dtype == torch.long


def test_vectors_are_stored_unnormalised_and_their_length_does_not_matter_to_cosine():
    layer = PrototypeLayer(*classes_and_levels({0: {2: 2}, 1: {5: 1}}), DIM)
    z = pyramid()
    before = layer(z)[0]
    with torch.no_grad():
        layer.vectors.mul_(10)
    assert layer.vectors.norm(dim=1).min() > 1.5
    torch.testing.assert_close(layer(z)[0], before)


def test_a_level_influences_only_its_own_prototypes():
    layer = PrototypeLayer(
        *classes_and_levels({0: {2: 1, 5: 1}}), DIM, Similarity(), Pooling(kind="max")
    )
    z = pyramid()
    before = layer(z)[0]
    z[5] = -z[5]
    after = layer(z)[0]
    assert torch.equal(before[:, 0], after[:, 0])
    assert not torch.equal(before[:, 1], after[:, 1])


@pytest.mark.parametrize(("classes", "levels"), [([0, 1], [5, 2]), ([0], [2, 2]), ([0, 1], [2])])
def test_prototypes_out_of_order_or_without_a_level_are_refused(classes, levels):
    with pytest.raises(
        ValueError, match="a class and a level for each prototype, in order of level"
    ):
        PrototypeLayer(classes, levels, DIM)


def test_an_unknown_similarity_is_refused():
    with pytest.raises(ValueError, match='expected similarity "cosine" or "log-l2", got "dot"'):
        Similarity("dot")
