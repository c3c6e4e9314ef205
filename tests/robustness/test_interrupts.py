"""One Ctrl-C ends a fit that consists of several, and keeps what was found until then."""

import warnings
from functools import partial

import numpy as np
import pytest

from latently.deep import DMCFA, DMFA
from latently.estimators.messages import InterruptedWarning
from latently.factorization import NLMF, DeepNLMF
from latently.generate import SourceDensity
from latently.mixture import PPCA, GaussianMixture, NestedMixture
from latently.selection import Imputer, compare, select
from latently.supervised import PerClass

X = np.random.default_rng(0).normal(size=(90, 4)) + 3 * (np.arange(90) % 3)[:, None]
LONG = {"max_iter": 200, "tol": 0.0, "random_state": 0}


class Once:
    """Interrupts once, after so many iterations, and counts those that follow."""

    def __init__(self, after):
        self.after, self.seen = after, 0

    def __call__(self, iteration):
        self.seen += 1
        if self.seen == self.after:
            raise KeyboardInterrupt

    def __deepcopy__(self, memo):
        return self  # clones of a density share it


MODELS = {
    "PerClass": lambda once: PerClass(
        GaussianMixture(2, n_init=1, callbacks=[once], **LONG), temperature=None
    ),
    "DMFA": lambda once: DMFA(2, 2, 2, 1, n_init=1, callbacks=[once], **LONG),
    "DMCFA-tuned": lambda once: DMCFA(2, 2, 2, 1, n_init=1, fine_tune=True, callbacks=[once], **LONG),
    "DeepNLMF": lambda once: DeepNLMF([3, 2], n_init=1, callbacks=[once], **LONG),
    "SourceDensity": lambda once: SourceDensity(
        NLMF(2, mapping="identity", n_init=1, callbacks=[once], **LONG),
        GaussianMixture(2, n_init=1, callbacks=[once], **LONG),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_interrupt_ends_the_whole_fit(name):
    once = Once(after=5)
    model = MODELS[name](once)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, np.arange(90) % 3) if name == "PerClass" else model.fit(X)
    told = [warning for warning in caught if "interrupted" in str(warning.message)]
    assert len(told) == 1
    assert once.seen < 20  # of hundreds
    used = next(name for name in ("score_sources", "score_samples", "transform") if hasattr(model, name))
    assert np.all(np.isfinite(getattr(model, used)(X)))


def test_an_interrupt_of_the_first_assignment_ends_a_nested_mixture(monkeypatch):
    """Which is a fit of its own, whose end was taken for its optimum."""
    once = Once(after=3)
    monkeypatch.setattr("latently.mixture.nested.GaussianMixture", partial(GaussianMixture, callbacks=[once]))
    model = NestedMixture(2, 2, n_init=1, **LONG)
    with pytest.warns(InterruptedWarning, match="NestedMixture was interrupted"):
        model.fit(X)
    assert once.seen == 3 and model.n_iter_ == 0
    assert np.all(np.isfinite(model.score_samples(X)))


def test_the_next_fit_is_a_whole_one():
    once = Once(after=5)
    model = MODELS["DMFA"](once)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
        short = model.n_iter_
        assert model.set_params(callbacks=None).fit(X).n_iter_ > 10 * short


# -- searches that consist of many fits ------------------------------------------------------------------


def interrupted(search, *arguments, **options):
    """The result of an interrupted search, which says so once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = search(*arguments, **options)
    assert len([warning for warning in caught if "interrupted" in str(warning.message)]) == 1
    return found


def test_select_ends_with_the_models_fitted_so_far():
    once = Once(after=30)
    model = GaussianMixture(n_init=1, callbacks=[once], max_iter=20, tol=0.0, random_state=0)
    found = interrupted(select, model, X, {"n_components": [1, 2, 3, 4]}, n_jobs=1)
    assert once.seen < 50
    reached = found.table_["error"] == ""
    assert reached.tolist() == [True, True, False, False]
    assert found.table_["error"][3] == "the search was interrupted before this model was fitted"
    assert found.best_params_["n_components"] in (1, 2) and np.isfinite(found.best_.score(X))
    assert found.table_["rank"].notna().tolist() == reached.tolist()


def test_select_that_compares_leaders_first_ends_too():
    once, grid = Once(after=100), {"n_components": [1, 2, 3, 4], "covariance_type": ["full", "diag", "tied"]}
    found = interrupted(select, GaussianMixture(callbacks=[once], random_state=0), X, grid, n_jobs=1)
    assert once.seen < 150 and found.table_["brief"].any() and np.isfinite(found.best_score_)


def test_a_cell_without_all_its_folds_is_not_ranked():
    once = Once(after=75)  # five fits of a cell with four folds have 55 iterations
    model = GaussianMixture(n_init=1, callbacks=[once], max_iter=10, tol=0.0, random_state=0)
    found = interrupted(
        select, model, X, {"n_components": [2, 3]}, "log_likelihood", cv=4, warm_starts=False, n_jobs=1
    )
    assert found.table_["rank"].notna().tolist() == [True, False] and found.best_params_["n_components"] == 2


def test_a_search_without_a_result_is_interrupted():
    model = GaussianMixture(2, n_init=1, callbacks=[Once(after=1)], random_state=0)
    with pytest.raises(KeyboardInterrupt):
        select(model, X, {"n_components": [2, 3]}, "log_likelihood", n_jobs=1)


def test_the_imputer_chooses_among_models_compared_so_far():
    holes = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
    models = [PPCA(1), GaussianMixture(2, n_init=1, callbacks=[Once(after=5)], **LONG), PPCA(2)]
    imputer = interrupted(Imputer(models, n_jobs=1, random_state=0).fit, holes)
    assert [candidate.name for candidate in imputer.candidates_] == ["PPCA(1)"]
    assert np.all(np.isfinite(imputer.transform(holes)))
    again = GaussianMixture(2, n_init=1, callbacks=[Once(after=5)], **LONG)
    with pytest.raises(KeyboardInterrupt):  # none is compared
        Imputer([again], n_jobs=1, random_state=0).fit(holes)


def test_compare_ends_with_the_families_fitted_so_far():
    told = []

    def progress(*how):
        told.append(how)
        if len(told) == 3:
            raise KeyboardInterrupt

    found = interrupted(compare, X, n_bootstrap=50, progress=progress)
    assert len(told) == 3 and found.table_["n_fits"].sum() == 3
    assert "interrupted" in found.verdict_ and np.isfinite(found.best_.score(X))
