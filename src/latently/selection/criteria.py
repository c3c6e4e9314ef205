"""The criteria by which models are compared, in one table that all who need them read.

`select` and its result, the report and the command line take names, columns, directions and needs from here.
It imports nothing large, so that `latently --help` can show it at no cost.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Criterion:
    """A number that tells how good a model is."""

    name: str  # what `select` calls it
    column: str  # where the table of a search has it
    label: str  # in plots and pages
    higher_is_better: bool
    description: str  # in one line
    held_out: str | None  # "rows" or "entries" of X that fits do without; None if all are fitted to
    estimator: str  # what the model has to be able to do
    methods: tuple[str, ...]  # that it must have for that
    labels: bool = False  # whether fits need labels

    @property
    def direction(self):
        return "higher is better" if self.higher_is_better else "lower is better"

    def serves(self, estimator):
        """Whether an estimator, or a class of them, has what the criterion needs."""
        return not self.lacking(estimator)

    def lacking(self, estimator):
        """The methods that it needs and an estimator does not have."""
        return [method for method in self.methods if not hasattr(estimator, method)]


_MIXTURE = ("be a mixture, such as MFA()", ("score_samples", "score", "predict_proba", "n_parameters"))
_CLASSIFIER = ("be a classifier, such as MJFAClassifier()", ("predict_proba", "predict_log_proba"))
_IMPUTER = ("impute missing values, such as NMF()", ("impute",))

CRITERIA = {
    criterion.name: criterion
    for criterion in (
        Criterion("bic", "bic", "BIC", False, "Bayesian information criterion", None, *_MIXTURE),
        Criterion("aic", "aic", "AIC", False, "Akaike information criterion", None, *_MIXTURE),
        Criterion("icl", "icl", "ICL", False, "BIC and the entropy of the responsibilities", None, *_MIXTURE),
        Criterion(
            "log_likelihood",
            "held_out_log_likelihood",
            "held-out log-likelihood per row",
            True,
            "mean log density of rows held out",
            "rows",
            *_MIXTURE,
        ),
        Criterion(
            "entries",
            "held_out_error",
            "squared error per held-out entry",
            False,
            "mean squared error of entries held out",
            "entries",
            *_IMPUTER,
        ),
        Criterion(
            "log_loss",
            "held_out_log_loss",
            "log loss per held-out row",
            False,
            "mean -ln P(class) of labelled rows held out",
            "rows",
            *_CLASSIFIER,
            labels=True,
        ),
    )
}
DEFAULT = "bic"
OF_ALL_ROWS = tuple(criterion for criterion in CRITERIA.values() if criterion.held_out is None)


def listed(names=CRITERIA, last="or"):
    """Names in a sentence: bic, aic or icl."""
    *first, final = names
    return f"{', '.join(first)} {last} {final}" if first else final
