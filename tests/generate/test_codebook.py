"""One codebook element of each group: groups, numbers of combinations, and draws."""

import pickle
from itertools import islice

import numpy as np
import pytest
from sklearn import decomposition
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

import latently
from latently.factorization import NMF, PCA, VectorQuantizer
from latently.generate import CodebookGenerator
from tests.unchecked import write_unchecked

X = load_digits().data[:300]


def strokes(sizes=(3, 1, 2), D=6, seed=0):
    """A codebook of groups of these sizes, shuffled, with the group of each element."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return np.eye(D)[group] + 0.05 * rng.uniform(size=(len(group), D)), group


def test_groups_are_those_of_similar_elements():
    codebook, group = strokes()
    model = CodebookGenerator(n_groups=3, random_state=0).fit(codebook)
    same = group[:, None] == group
    np.testing.assert_array_equal(model.labels_[:, None] == model.labels_, same)
    np.testing.assert_array_equal(np.sort(np.concatenate(model.groups_)), np.arange(6))
    assert sorted(map(len, model.groups_)) == [1, 2, 3] and model.n_combinations_ == 6
    for k, own in enumerate(model.groups_):
        np.testing.assert_allclose(model.centers_[k], model.codebook_[own].mean(axis=0), rtol=1e-10)
    assert all(np.any(np.all(np.isclose(model.codebook_, start), axis=1)) for start in model.starts_)


@pytest.mark.parametrize("unit_length", [True, False])
def test_elements_have_unit_length_if_asked(unit_length):
    codebook, _ = strokes()
    codebook = np.concatenate([3.0 * codebook, np.zeros((1, 6))])
    model = CodebookGenerator(n_groups=3, unit_length=unit_length, random_state=0).fit(codebook)
    length = np.linalg.norm(codebook, axis=1, keepdims=True)
    expected = codebook / np.where(length > 0, length, 1) if unit_length else codebook
    np.testing.assert_allclose(model.codebook_, expected, rtol=1e-12)


def test_numbers_count_the_combinations():
    codebook, _ = strokes((3, 1, 2, 4), D=8)
    model = CodebookGenerator(n_groups=4, random_state=0).fit(codebook)
    listed = list(model.combinations())
    assert len(listed) == model.n_combinations_ == 24 == len(set(listed))
    np.testing.assert_array_equal(model.combination(range(24)), listed)
    np.testing.assert_array_equal(model.combination(7), listed[7])
    np.testing.assert_array_equal(model.labels_[np.array(listed)], np.tile(np.arange(4), (24, 1)))
    rows = model.compose(listed)
    np.testing.assert_allclose(rows[5], sum(model.codebook_[list(listed[5])]), rtol=1e-12)
    np.testing.assert_allclose(model.compose(listed[5]), rows[5], rtol=1e-12)
    assert len(np.unique(rows.round(9), axis=0)) == 24
    assert model.combination([]).shape == (0, 4)


def test_more_combinations_than_any_array_could_hold():
    codebook, _ = strokes((20,) * 20, D=20)
    model = CodebookGenerator(n_groups=20, n_init=3, init="k-means++", random_state=0).fit(codebook)
    assert model.n_combinations_ == 20**20 > 2**64
    assert list(islice(model.combinations(), 3)) == [tuple(model.combination(i)) for i in range(3)]
    last = model.combination(model.n_combinations_ - 1)
    np.testing.assert_array_equal(last, [group[-1] for group in model.groups_])
    for wrong in (-1, model.n_combinations_, 1.0, True):
        with pytest.raises(ValueError, match="number must be an integer"):
            model.combination([wrong])


def test_draws_are_uniform_over_combinations():
    codebook, _ = strokes((3, 1, 2))
    model = CodebookGenerator(n_groups=3, random_state=0).fit(codebook)
    rows, elements = model.sample(12_000, random_state=0)
    np.testing.assert_allclose(rows, model.compose(elements), rtol=1e-12)
    found, counts = np.unique(elements, axis=0, return_counts=True)
    assert set(map(tuple, found)) == set(model.combinations())
    np.testing.assert_allclose(counts / 12_000, 1 / 6, atol=0.02)
    np.testing.assert_array_equal(model.sample(5, random_state=1)[0], model.sample(5, random_state=1)[0])


@pytest.mark.parametrize(
    "factorizer",
    [
        NMF(12, random_state=0),
        VectorQuantizer(12, n_init=1, random_state=0),
    ],
    ids=["NMF", "prototypes"],
)
def test_codebook_of_a_factorisation(factorizer):
    model = CodebookGenerator(factorizer, 4, random_state=0).fit(X)
    alone = CodebookGenerator(None, 4, random_state=0).fit(model.factorizer_.components_)
    np.testing.assert_array_equal(model.labels_, alone.labels_)
    rows, _ = model.sample(10, random_state=0)
    assert rows.shape == (10, 64) and rows.min() >= 0
    with pytest.raises(NotFittedError):
        factorizer.transform(X)


@pytest.mark.parametrize("factorizer", [None, NMF(8, random_state=0)], ids=["codebook", "NMF"])
def test_saving_and_loading(factorizer, tmp_path):
    model = CodebookGenerator(factorizer, 3, random_state=0).fit(X[:40])
    model.save(tmp_path / "model.latently")
    for copy in (latently.load(tmp_path / "model.latently"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(copy.sample(9, random_state=0)[0], model.sample(9, random_state=0)[0])
        np.testing.assert_array_equal(copy.labels_, model.labels_)
        assert copy.n_combinations_ == model.n_combinations_ and copy.n_features_in_ == 64
        np.testing.assert_array_equal(copy.starts_, model.starts_)
        assert f"{len(model.codebook_)} elements in 3 groups, 64 features" in copy._repr_html_()
        assert (copy.factorizer_ is None) == (factorizer is None)


def test_files_with_labels_that_do_not_fit(tmp_path):
    model = CodebookGenerator(n_groups=3, random_state=0).fit(X[:40])
    model.labels_ = np.minimum(model.labels_, 1)
    write_unchecked(model, tmp_path / "model.latently")
    with pytest.raises(latently.core.io.ModelFileError, match="every group from 0 to 2"):
        latently.load(tmp_path / "model.latently")


def test_bad_use():
    codebook, _ = strokes()
    for settings in ({"n_groups": 0}, {"unit_length": 1}, {"init": "best"}, {"n_init": 0}):
        (name,) = settings
        with pytest.raises(ValueError, match=name):
            CodebookGenerator(**settings).fit(codebook)
    with pytest.raises(ValueError, match="n_groups=7"):
        CodebookGenerator(n_groups=7).fit(codebook)
    with pytest.raises(TypeError, match="factorizer"):
        CodebookGenerator(PCA).fit(X)
    with pytest.raises(TypeError, match="components_"):
        CodebookGenerator(decomposition.KernelPCA(3)).fit(X)
    with pytest.raises(NotFittedError):
        CodebookGenerator().sample()
    with pytest.raises(NotFittedError):
        list(CodebookGenerator().combinations())
    model = CodebookGenerator(n_groups=2, random_state=0).fit(codebook)
    for wrong in ([[0.5]], [6], [-1], 3):
        with pytest.raises(ValueError, match="elements must"):
            model.compose(wrong)
