"""Deep mixtures against dense Gaussian algebra: densities, posteriors, counts, bound and EM."""

import itertools
import warnings

import numpy as np
import pytest
from scipy.special import logsumexp

import latently
from latently.deep import DMCFA, DMFA
from latently.deep.counts import n_structure_parameters
from latently.deep.tree import Tree, collapsed, with_params
from latently.distributions.mixture import Mixture
from latently.mixture import MCFA, MFA
from tests.deep.helpers import CASES, build, case, part, read
from tests.oracles import deep as oracle

MODELS = {False: DMFA, True: DMCFA}
SHALLOW = {False: MFA, True: MCFA}
both = pytest.mark.parametrize("common", [False, True], ids=["DMFA", "DMCFA"])
every_case = pytest.mark.parametrize("number", range(len(CASES)))
QUICK = {"n_init": 2, "tol": 1e-4, "random_state": 0}


def clusters(seed, n_rows=120, D=5):
    """Rows of two components whose factors have clusters of their own."""
    rng = np.random.default_rng(seed)
    z = rng.normal(scale=0.3, size=(n_rows, 2)) + rng.choice([-2.0, 2.0], size=(n_rows, 1)) * [1.0, 0.5]
    c = rng.integers(2, size=n_rows)
    maps, places = rng.normal(size=(2, D, 2)), rng.normal(scale=6.0, size=(2, D))
    return np.array([places[k] + maps[k] @ u for k, u in zip(c, z, strict=True)]) + rng.normal(
        size=(n_rows, D)
    )


# -- the collapsed density -----------------------------------------------------------------------------


@both
@every_case
def test_density_and_posteriors(number, common):
    layers, X = case(number, common)
    model = build(layers)
    np.testing.assert_allclose(model.score_samples(X), oracle.log_density(X, layers), rtol=1e-9)
    for layer in range(1, len(layers) + 1):
        expected = oracle.probabilities(X, layers, layer)
        np.testing.assert_allclose(model.predict_proba(X, layer=layer), expected, atol=1e-9)
        np.testing.assert_array_equal(model.predict(X, layer=layer), np.argmax(expected, axis=1))
        means, covariances = model.factor_posterior(X, layer=layer)
        for s, leaf in enumerate(oracle.leaves(layers)):
            expected_means, expected_cov = leaf.given_x(X, layer)
            np.testing.assert_allclose(means[:, s], expected_means, atol=1e-8)
            np.testing.assert_allclose(covariances[s], expected_cov, atol=1e-8)
    np.testing.assert_allclose(model.transform(X), oracle.transform(X, layers), atol=1e-8)
    weights = [leaf.weight for leaf in oracle.leaves(layers)]
    np.testing.assert_allclose(model.weights_, weights)
    np.testing.assert_array_equal(model.component_of_, [leaf.path[0] for leaf in oracle.leaves(layers)])


@both
@every_case
def test_collapsed_mixture_is_the_same_density(number, common):
    layers, X = case(number, common)
    model = build(layers)
    shallow = model.collapse()
    assert type(shallow) is SHALLOW[common]
    assert shallow.n_factors == CASES[number][1][0]
    np.testing.assert_allclose(shallow.score_samples(X), oracle.log_density(X, layers), rtol=1e-9)
    for s, leaf in enumerate(oracle.leaves(layers)):
        np.testing.assert_allclose(shallow.means_[s], leaf.of(0)[0], atol=1e-9)
        np.testing.assert_allclose(shallow.covariances_[s], leaf.of(0)[1], atol=1e-9)


@both
@every_case
def test_sampler_agrees_with_density(number, common):
    layers, _ = case(number, common)
    model = build(layers)
    narrower = [[dict(mixture) for mixture in parts] for parts in layers]
    narrower[0][0]["noise"] = 0.8 * narrower[0][0]["noise"]
    X, leaves = model.sample(20_000, layer=len(layers), random_state=number)
    ratio = np.exp(build(narrower).score_samples(X) - model.score_samples(X))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(X))
    assert 0.5 < ratio.mean() < 1.5 and ratio.std() > 0.01
    for s, leaf in enumerate(oracle.leaves(layers)):
        share = np.mean(leaves == s)
        assert abs(share - leaf.weight) < 5 * np.sqrt(leaf.weight / len(X))
        off = np.linalg.solve(np.linalg.cholesky(leaf.of(0)[1]), (X[leaves == s] - leaf.of(0)[0]).T)
        np.testing.assert_allclose(off.mean(axis=1), 0, atol=5 / np.sqrt(share * len(X)))
        np.testing.assert_allclose(np.cov(off), np.eye(len(off)), atol=9 / np.sqrt(share * len(X)))
    again, components = model.sample(20_000, random_state=number)
    np.testing.assert_array_equal(again, X)
    np.testing.assert_array_equal(components, model.component_of_[leaves])


@both
@every_case
def test_rows_of_factors_and_back(number, common):
    layers, X = case(number, common)
    model, last = build(layers), len(layers)
    Z = model.transform(X)
    expected = np.zeros_like(X)
    tree = oracle.leaves(layers)
    joint = np.array([_log_prior(leaf, Z, last) for leaf in tree]).T
    shares = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    for s, leaf in enumerate(tree):
        x, z = leaf.slices[0], leaf.slices[last]
        gain = leaf.cov[x, z] @ np.linalg.inv(leaf.cov[z, z])
        expected += shares[:, [s]] * (leaf.mean[x] + (Z - leaf.mean[z]) @ gain.T)
    np.testing.assert_allclose(model.inverse_transform(Z), expected, atol=1e-6)
    noiseless = np.zeros_like(X)
    posterior = oracle.probabilities(X, layers)
    for s, leaf in enumerate(tree):
        first = layers[0][0]
        W = first["loadings"] if common else first["loadings"][leaf.path[0]]
        mean = 0.0 if common else first["means"][leaf.path[0]]
        noiseless += posterior[:, [s]] * (mean + leaf.given_x(X, 1)[0] @ W.T)
    np.testing.assert_allclose(model.reconstruct(X), noiseless, atol=1e-8)


def _log_prior(leaf, Z, last):
    from scipy.stats import multivariate_normal

    return np.log(leaf.weight) + multivariate_normal(*leaf.of(last)).logpdf(Z).reshape(len(Z))


@both
def test_holes(common):
    layers, X = case(0, common)
    model = build(layers)
    holed = X.copy()
    holed[::2, 1] = np.nan
    filled = model.impute(holed)
    means, covariances = model.factor_posterior(holed)
    for n, row in enumerate(holed):
        seen = ~np.isnan(row)
        parts, open_ = [], np.zeros(len(row))
        for leaf in oracle.leaves(layers):
            mean, cov = leaf.of(0)
            gain = cov[:, seen] @ np.linalg.inv(cov[np.ix_(seen, seen)])
            log_p = oracle.multivariate_normal(mean[seen], cov[np.ix_(seen, seen)]).logpdf(row[seen])
            parts.append((np.log(leaf.weight) + log_p, mean + gain @ (row[seen] - mean[seen])))
        joint = np.array([log_p for log_p, _ in parts])
        np.testing.assert_allclose(model.score_samples(holed[n : n + 1]), logsumexp(joint), rtol=1e-9)
        resp = np.exp(joint - logsumexp(joint))
        open_ = sum(r * mean for r, (_, mean) in zip(resp, parts, strict=True))
        np.testing.assert_allclose(filled[n], np.where(seen, row, open_), atol=1e-8)
    assert means.shape[0] == covariances.shape[0] == len(X)
    complete = model.factor_posterior(X[1::2])[1]
    np.testing.assert_allclose(covariances[1], complete, atol=1e-9)
    assert np.all(np.linalg.eigvalsh(covariances[0] - complete) > -1e-9)


# -- counts --------------------------------------------------------------------------------------------


@both
@every_case
def test_counts_are_jacobian_ranks(number, common):
    D, factors, counts = CASES[number]
    layers, _ = case(number, common)
    assert build(layers).n_parameters() == oracle.jacobian_rank(D, factors, counts, common)[0]


@both
@pytest.mark.parametrize(
    ("D", "factors", "counts"),
    [
        (14, [4, 1], [[2], [3, 2]]),
        (9, [3, 2], [[2], [1, 2]]),
        (7, [2, 2], [[2], [2, 1]]),
        (9, [4, 2, 1], [[1], [1], [3]]),
        (8, [3, 2, 2], [[2], [2, 2], [1, 1, 2, 1]]),
    ],
)
def test_counts_of_other_trees(D, factors, counts, common):
    parents = [np.repeat(np.arange(len(of_layer)), of_layer) for of_layer in counts[1:]]
    count = n_structure_parameters(parents, factors, D, common=common) + sum(counts[-1]) - 1
    assert count == oracle.jacobian_rank(D, factors, counts, common)[0]


def test_counts_known_from_the_errata():
    of_dmfa = n_structure_parameters([np.array([0, 0, 0, 1, 1])], [4, 1], 14, common=False) + 4
    of_dmcfa = n_structure_parameters([np.array([0, 0, 0, 1, 1, 2, 2])], [4, 1], 14, common=True) + 6
    assert (of_dmfa, of_dmcfa) == (202, 107)


# -- the bound -----------------------------------------------------------------------------------------


@both
@every_case
def test_bound(number, common):
    layers, X = case(number, common)
    model = build(layers)
    bound = model.bound(X)
    np.testing.assert_allclose(bound, oracle.bound(X, layers), rtol=1e-8, atol=1e-8)
    assert np.all(bound <= model.score_samples(X) + 1e-9)


@both
def test_bound_is_tight_where_the_layer_reproduces_the_prior(common):
    (layers, X), q = case(0, common), 2
    lower = layers[0][0]
    if common:  # of as many factors as there are below
        second = [
            {
                "weights": np.ones(1),
                "loadings": np.eye(q),
                "noise": np.full(q, 0.1),
                "latent_means": lower["latent_means"][[c]],
                "latent_covs": lower["latent_covs"][[c]] - 0.1 * np.eye(q),
            }
            for c in range(2)
        ]
    else:
        loadings = np.array([[[0.6], [0.0]]])
        one = {"weights": np.ones(1), "means": np.zeros((1, q)), "loadings": loadings}
        second = [one | {"noise": np.array([[1 - 0.36, 1.0]])}] * 2
    model = build([layers[0], second])
    expected = part(lower).score_samples(X)
    np.testing.assert_allclose(model.score_samples(X), expected, rtol=1e-9)
    np.testing.assert_allclose(model.bound(X), expected, rtol=1e-9)


@both
def test_bound_of_rows_with_holes(common):
    layers, X = case(1, common)
    model = build(layers)
    np.testing.assert_allclose(model.bound(X[:4]), oracle.bound(X[:4], layers), rtol=1e-8)
    holed = X.copy()
    holed[::2, 0] = np.nan
    # rows without a feature are rows of the model without it
    fewer = [[dict(layers[0][0])], *layers[1:]]
    for name in ("loadings", "noise") if common else ("loadings", "noise", "means"):
        axis = 0 if common else 1
        fewer[0][0][name] = np.delete(layers[0][0][name], 0, axis=axis)
    np.testing.assert_allclose(model.bound(holed)[::2], oracle.bound(X[::2, 1:], fewer), rtol=1e-8)
    np.testing.assert_allclose(model.bound(holed)[1::2], model.bound(X)[1::2], rtol=1e-10)


@both
@pytest.mark.parametrize("prior_rows", [0.0, 5.0])
@pytest.mark.parametrize("seed", range(3))
def test_bound_never_falls(seed, prior_rows, common):
    X = clusters(seed)
    model = MODELS[common](2, 3, [2, 3], 1, prior_rows=prior_rows, prior=None, **QUICK | {"tol": 1e-6}).fit(X)
    (history,) = model.bound_history_
    assert np.all(np.diff(history) >= -1e-9)
    bound = model.bound(X).mean()
    assert history[-1] <= bound + 1e-9
    assert bound <= model.score(X) + 1e-9
    np.testing.assert_allclose(model.history_[-1], model.score(X), rtol=1e-10)
    if prior_rows == 0.0:
        np.testing.assert_allclose(history[-1], bound, rtol=1e-9)
    if not common:
        first = model.layers_[0][0]
        np.testing.assert_allclose(history[0], first.score(X), rtol=1e-10)
        np.testing.assert_allclose(model.history_[0], first.score(X), rtol=1e-10)
        assert model.score(X) >= first.score(X)


@both
def test_layers_below_are_frozen(common):
    X = clusters(0)
    model = MODELS[common](2, 2, 2, 1, **QUICK).fit(X)
    shallow = SHALLOW[common](2, 2, **QUICK).fit(X)
    np.testing.assert_allclose(model.layers_[0][0].score_samples(X), shallow.score_samples(X), atol=0.1)
    if not common:
        np.testing.assert_allclose(model.layers_[0][0].covariances_, shallow.covariances_, rtol=1e-8)
    three = MODELS[common](2, 2, 2, [1, 1], **QUICK).fit(X)
    assert [len(parts) for parts in three.layers_] == [1, 2, 4]
    assert len(three.bound_history_) == 2
    for history in three.bound_history_:
        assert np.all(np.diff(history) >= -1e-9)
    if not common:
        assert np.all(np.diff(three.history_) >= -1e-9)
        np.testing.assert_allclose(three.bound_history_[1][0], three.history_[1], rtol=1e-9)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_second_layer_finds_what_one_layer_cannot_say(seed):
    X, new = np.split(clusters(seed, 800), 2)
    model = DMFA(2, 2, 2, 1, **QUICK).fit(X)
    assert model.score(new) > model.layers_[0][0].score(new) + 0.1


@both
def test_sampled_inputs(common):
    X = clusters(2)
    model = MODELS[common](2, 2, 2, 1, inputs="sampled", prior=None, **QUICK).fit(X)
    (history,) = model.bound_history_
    assert len(history) == 2
    np.testing.assert_allclose(history[-1], model.bound(X).mean(), rtol=1e-9)
    assert model.score(X) > model.layers_[0][0].score(X) - 0.2
    other = MODELS[common](2, 2, 2, 1, inputs="sampled", **QUICK | {"random_state": 1}).fit(X)
    assert model.score(X) != other.score(X)


# -- fine-tuning ---------------------------------------------------------------------------------------


@both
@every_case
def test_step_over_all_layers(number, common):
    layers, X = case(number, common, n_rows=60)
    model = build(layers)
    tree = Tree.of(model.kind, model.layers_)
    flat = collapsed(tree).kernel.family
    kernel = Mixture(tree.kind.leaves(flat, tree.rules(), tree.nodes[0]))
    from latently.core.block import Block

    density = kernel.prepare(tree.params)
    stats = kernel.stats(density, kernel.e_step(density, Block(X)))
    np.testing.assert_allclose(stats.log_likelihood, oracle.log_density(X, layers).sum(), rtol=1e-10)
    stepped = with_params(tree, kernel.canonical(kernel.m_step(stats, tree.params)))
    model.layers_ = [[tree.kind.fitted(one) for one in mixtures] for mixtures in stepped.layers]
    expected = oracle.step(X, layers)
    if common:  # factors of lower layers have no moments of their own in the oracle
        for parts, ours in zip(expected[:-1], read(model), strict=False):
            for one, other in zip(parts, ours, strict=True):
                one |= {name: other[name] for name in ("latent_means", "latent_covs")}
    np.testing.assert_allclose(model.score_samples(X), oracle.log_density(X, expected), rtol=1e-7)
    np.testing.assert_allclose(
        model.predict_proba(X, layer=len(layers)), oracle.probabilities(X, expected), atol=1e-7
    )


@both
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("accelerate", [None, "squarem"])
def test_fine_tuning_never_lowers_the_likelihood(seed, accelerate, common):
    X = clusters(seed)
    greedy = MODELS[common](2, 2, 2, 1, prior=None, **QUICK).fit(X)
    tuned = MODELS[common](2, 2, 2, 1, fine_tune=True, accelerate=accelerate, prior=None, **QUICK).fit(X)
    assert np.all(np.diff(tuned.history_[1:]) >= -1e-9)
    np.testing.assert_allclose(tuned.history_[-1], tuned.score(X), rtol=1e-9)
    np.testing.assert_allclose(tuned.score_samples(X), oracle.log_density(X, read(tuned)), rtol=1e-8)
    if accelerate == greedy.accelerate:
        assert tuned.score(X) > greedy.score(X)
    assert np.all(tuned.bound(X) <= tuned.score_samples(X) + 1e-9)
    assert tuned.n_parameters() == greedy.n_parameters()


def test_fine_tuned_factors_are_standardised():
    X = clusters(0)
    model = DMFA(2, 2, [2, 3], 1, fine_tune=True, **QUICK).fit(X)
    for c, mixture in enumerate(model.layers_[1]):
        mean = mixture.weights_ @ mixture.means_
        second = np.einsum("k,kij->ij", mixture.weights_, mixture.covariances_)
        off = mixture.means_ - mean
        variance = np.diag(second) + mixture.weights_ @ off**2
        np.testing.assert_allclose(mean, 0, atol=1e-9, err_msg=str(c))
        np.testing.assert_allclose(variance, 1, rtol=1e-9)


# -- rows ----------------------------------------------------------------------------------------------


@both
def test_known_components(common):
    X = clusters(4)
    y = MODELS[common](2, 2, 2, 1, **QUICK).fit(X).predict(X)
    turned = MODELS[common](2, 2, 2, 1, fine_tune=True, **QUICK).fit(X, 1 - y)
    assert np.mean(turned.predict(X) == 1 - y) > 0.95


@both
def test_missing_entries_in_training(common):
    X = clusters(5)
    holed = X.copy()
    holed[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    model = MODELS[common](2, 2, 2, 1, prior_rows=0.0, prior=None, **QUICK).fit(holed)
    (history,) = model.bound_history_
    assert np.all(np.diff(history) >= -1e-9)
    np.testing.assert_allclose(history[-1], model.bound(holed).mean(), rtol=1e-8)
    assert model.bound(holed).mean() <= model.score(holed)
    sampled = MODELS[common](2, 2, 2, 1, inputs="sampled", fine_tune=True, **QUICK).fit(holed)
    assert np.all(np.isfinite(sampled.score_samples(holed)))


# -- files ---------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("sizes", [(2, 2, 2, 1), (2, 2, [2, 1], 1), (2, 2, [2, [1, 2, 1, 2]], (2, 1))])
def test_saving_and_loading(sizes, common, tmp_path):
    X = clusters(7)
    model = MODELS[common](*sizes, **QUICK).fit(X)
    model.save(tmp_path / "model.latently")
    loaded = latently.load(tmp_path / "model.latently")
    assert type(loaded) is MODELS[common]
    for method in ("score_samples", "predict_proba", "transform", "bound"):
        np.testing.assert_array_equal(getattr(loaded, method)(X), getattr(model, method)(X))
    np.testing.assert_array_equal(loaded.sample(5, random_state=0)[0], model.sample(5, random_state=0)[0])
    assert loaded.n_parameters() == model.n_parameters()
    np.testing.assert_array_equal(loaded.history_, model.history_)
    for here, there in itertools.zip_longest(loaded.bound_history_, model.bound_history_):
        np.testing.assert_array_equal(here, there)
    again = loaded.fit(X)
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))


@pytest.mark.parametrize("weights", [None, np.r_[np.full(20, 3.0), np.ones(5)]], ids=["", "weighted"])
def test_rows_that_are_all_the_same(weights):
    rows = np.tile([6692.75, 1.0], (25, 1))
    model = DMCFA(2, 2, 2, 1, max_iter=12, n_init=1, tol=0.0, accelerate=None, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows, sample_weight=weights)
    assert np.all(np.isfinite(model.history_))
