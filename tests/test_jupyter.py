"""Models as notebooks show them, and tables that go in and come out with their names."""

import importlib
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from latently import saved
from latently.estimators import notebook
from latently.factorization import BNMF, BinarySparseCoding
from latently.mixture import MCFA, MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture
from latently.supervised import MFMClassifier, MJFAClassifier, PerClass

SETTINGS = {"random_state": 0, "tol": 1e-2, "n_init": 1}  # it is not the fit that is shown here
TRANSFORMERS = [
    FactorAnalysis(2, **SETTINGS),
    PPCA(2),
    MFA(2, 2, **SETTINGS),
    MPPCA(2, 2, **SETTINGS),
    MCFA(2, 2, **SETTINGS),
    MJFAClassifier(2, 2, **SETTINGS),
    MFMClassifier(2, 2, **SETTINGS),
    BNMF(2, **SETTINGS),
    BinarySparseCoding(2, **SETTINGS),
]
MODELS = [*TRANSFORMERS, GaussianMixture(3, **SETTINGS), PerClass(MFA(1, 1))]


def named(estimator):
    return type(estimator).__name__


def flowers():
    X, y = load_iris(return_X_y=True, as_frame=True)
    X.index = [f"flower {n}" for n in range(len(X))]
    return X.round(), y


def fitted(model, X, y):
    labels = (y,) if is_classifier(model) else ()
    return model.fit(X, *labels)


class Parts(HTMLParser):
    """The cells of the summary, and whether all that is opened is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.cells = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open and self.open[-1] in ("th", "td"):
            self.cells.append(text)

    @property
    def facts(self):
        return dict(zip(self.cells[::2], self.cells[1::2], strict=True))


def summary(model):
    parts = Parts(notebook.summary_html(model))
    assert not parts.open
    return parts.facts


# -- summaries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", saved.KNOWN_CLASSES)
def test_every_model_has_a_summary(name):
    cls = getattr(importlib.import_module(saved.KNOWN_CLASSES[name]), name)
    assert cls._repr_html_inner is notebook.html
    assert cls._repr_mimebundle_ is notebook.mimebundle


@pytest.mark.parametrize("model", MODELS, ids=named)
def test_summary_stands_below_the_diagram_once_there_is_a_fit(model):
    X, y = flowers()
    assert "latently-summary" not in model._repr_html_()
    model = fitted(model, X, y)
    page = model._repr_html_()
    assert page.endswith(notebook.summary_html(model))
    assert page.count('class="latently-summary"') == 1
    assert f"{named(model)}" in page.removesuffix(notebook.summary_html(model))  # the diagram
    bundle = model._repr_mimebundle_()
    assert 'class="latently-summary"' in bundle["text/html"]
    assert bundle["text/plain"] == repr(model)
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert model._repr_mimebundle_().keys() == {"text/plain"}
    facts = summary(model)
    assert facts["size"].endswith("4 features")
    assert facts["features"] == ", ".join(X.columns)
    for call in facts["methods"].split(", "):
        assert callable(getattr(model, call.partition("(")[0]))


def test_summary_tells_the_numbers_of_the_fit():
    X, _ = flowers()
    model = MFA(3, 1, **SETTINGS).fit(X)
    facts = summary(model)
    assert facts["size"] == "3 components, 1 factor, 4 features"
    np.testing.assert_allclose(
        [float(text) for text in facts["weights"].split(", ")], model.weights_, atol=6e-4
    )
    assert float(facts["penalised log-likelihood per row"]) == pytest.approx(model.history_[-1], rel=1e-5)
    likelihood = summary(MFA(3, 1, prior=None, **SETTINGS).fit(X))["log-likelihood per row"]
    assert float(likelihood) == pytest.approx(MFA(3, 1, prior=None, **SETTINGS).fit(X).score(X), rel=1e-5)
    assert facts["fit"].startswith(f"converged after {model.n_iter_} iteration")
    cut_short = MFA(3, 1, max_iter=1, tol=0.0, random_state=0).fit(X)
    assert summary(cut_short)["fit"] == "ended after 1 iteration, before it converged"


def test_summary_of_classifiers_tells_classes_and_rejection():
    X, y = flowers()
    model = MJFAClassifier(2, 2, **SETTINGS).fit(X, y)
    facts = summary(model)
    assert facts["size"] == "3 classes, 2 components of each class, 2 factors, 4 features"
    assert facts["classes"] == "0 (0.333), 1 (0.333), 2 (0.333)"
    assert "rejection" not in facts
    model.calibrate_rejection(X + 0.01, acceptance=0.9)
    assert f"{model.reject_below_:.6g}" in summary(model)["rejection"]


def test_summary_of_a_model_whose_parameters_were_given():
    model = PPCA.from_parameters(mean=[0.0, 0.0], loadings=[[1.0], [2.0]], noise_variance=0.5)
    facts = summary(model)
    assert facts["fit"] == "none: the parameters were given"
    assert "log-likelihood per row" not in facts
    assert "features" not in facts


def test_summary_of_a_model_with_torch_tensors():
    model = MFA(2, 1, **SETTINGS).fit(flowers()[0].to_numpy())
    assert summary(model.to("cpu")) == summary(model)


def test_long_lists_are_cut_short():
    X = np.random.default_rng(0).normal(size=(60, 2))
    weights = summary(GaussianMixture(12, covariance_type="spherical", **SETTINGS).fit(X))["weights"]
    assert weights.endswith(", ... (12 in all)")
    assert weights.count(",") == 8


def test_names_are_text_and_never_html():
    X, y = flowers()
    evil = "<script>alert('X')</script>&"
    X = X.rename(columns={X.columns[0]: evil})
    model = PerClass(MFA(1, 1)).fit(X, y.map({0: "<b>", 1: "c", 2: "d"}))
    text = notebook.summary_html(model)
    assert "<script" not in text
    assert "<b>" not in text
    assert summary(model)["features"].startswith(evil)
    assert summary(model)["classes"].startswith("<b> (0.333)")


# -- tables -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", TRANSFORMERS, ids=named)
def test_tables_come_out_with_index_and_names(model):
    X, y = flowers()
    plain = fitted(model, X, y).transform(X)
    assert isinstance(plain, np.ndarray)
    try:
        factors = model.set_output(transform="pandas").transform(X)
        again = model.fit_transform(X, *((y,) if is_classifier(model) else ()))
    finally:
        model.set_output(transform="default")
    assert list(factors.columns) == [f"{named(model).lower()}{i}" for i in range(2)]
    assert list(factors.columns) == list(model.get_feature_names_out())
    assert list(factors.index) == list(X.index)
    np.testing.assert_array_equal(factors.to_numpy(), plain)
    assert list(again.columns) == list(factors.columns)
    assert model.inverse_transform(factors).shape == X.shape


def test_tables_pass_through_pipelines():
    X, _ = flowers()
    pipeline = make_pipeline(StandardScaler(), MCFA(2, 2, **SETTINGS)).set_output(transform="pandas").fit(X)
    assert list(pipeline[-1].feature_names_in_) == list(X.columns)  # the scaler hands names on
    factors = pipeline.transform(X)
    assert list(factors.columns) == list(pipeline.get_feature_names_out()) == ["mcfa0", "mcfa1"]
    assert list(factors.index) == list(X.index)
    assert list(summary(pipeline[-1])["features"].split(", ")) == list(X.columns)
    columns = ColumnTransformer(
        [("sepal", FactorAnalysis(1), list(X.columns[:2])), ("petal", PPCA(1), list(X.columns[2:]))]
    )
    beside = columns.set_output(transform="pandas").fit_transform(X)
    assert list(beside.columns) == ["sepal__factoranalysis0", "petal__ppca0"]


@pytest.mark.parametrize("model", MODELS, ids=named)
def test_columns_in_another_order_are_an_error(model):
    X, y = flowers()
    model = fitted(model, X, y)
    assert list(model.feature_names_in_) == list(X.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.score_samples(X[X.columns[::-1]])


def test_messages_call_features_by_their_names():
    X, _ = flowers()
    with pytest.raises(ValueError, match=r"feature 'petal width \(cm\)' of X is missing"):
        MFA().fit(X.assign(**{X.columns[3]: np.nan}))
    with pytest.raises(ValueError, match="feature 3 of X is missing"):
        MFA().fit(X.assign(**{X.columns[3]: np.nan}).to_numpy())
    with pytest.warns(UserWarning, match=r"constant features \('sepal width \(cm\)'\)"):
        MFA().fit(X.assign(**{X.columns[1]: 1.0}))
    with pytest.raises(ValueError, match=r"feature 'petal width \(cm\)' of X varies so little"):
        MFA().fit(X.assign(**{X.columns[3]: 1e-200 * X.iloc[:, 3]}))
    with pytest.raises(ValueError, match=r"feature 'sepal length \(cm\)' of X lies .* away from the origin"):
        MCFA().fit(X.assign(**{X.columns[0]: X.iloc[:, 0] + 1e14}))
