"""What classifiers share that are fitted by the engine of mixtures."""

from __future__ import annotations

import numpy as np

from latently.supervised._classes import UNLABELLED, LatentClassifier


class ClassifyingMixture(LatentClassifier):
    """To be put before a mixture: `fit` with labels of classes in place of components."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.array_api_support = False  # rows may be anywhere, but labels, which may be text, are with NumPy
        return tags

    def fit(self, X, y=None, sample_weight=None):
        """Fit the model by expectation-maximisation over all classes together.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
            The rows, wherever they are, as for all mixtures. NaN is an entry that was not observed.
        y : array-like of shape (n_samples,)
            The class of each row: numbers or text; -1 where it is not known. Among two labels only, of which
            one is -1, that is a class.
        sample_weight : array-like of shape (n_samples,), optional
            How often each row counts; fractions are fine.

        Returns
        -------
        self
        """
        self._demand(y)
        return super().fit(X, y, sample_weight)

    def partial_fit(self, X, y=None, sample_weight=None, classes=None):
        """Go on fitting with a batch of rows, by stepwise EM.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`. The first batch gives the starting values, so it should hold rows of all classes.
        classes : array-like of shape (n_classes,), optional
            All classes, for the first batch; by default those of its labels.

        Returns
        -------
        self
        """
        self._demand(y)
        self._declared = None if classes is None else np.unique(classes)
        try:
            return super().partial_fit(X, y, sample_weight)
        finally:
            vars(self).pop("_declared", None)

    def _demand(self, y):
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")

    def _known(self, y, n_rows, *, reset):
        """(n_rows, C) bool: the class of each row, all classes if it has no label; None if none has."""
        classes = getattr(self, "_declared", None) if reset else self.classes_
        codes = self._encoded(y, n_rows, classes)
        of_class = (codes[:, None] == np.arange(len(self.classes_))) | (codes[:, None] == UNLABELLED)
        return None if of_class.all() else of_class

    def _n_classes(self):
        return len(self.classes_) if hasattr(self, "classes_") else 1

    def _check_hyperparameters(self):
        super()._check_hyperparameters()
        self._check_reject_below()

    def _fit(self, data):
        super()._fit(data)
        self._start_rejecting()
        return self

    def _partial_fit(self, X, y, sample_weight):
        super()._partial_fit(X, y, sample_weight)
        if not hasattr(self, "reject_below_"):
            self._start_rejecting()
        return self

    def _set_parameters(self, **given):
        self._set_classes(None, self._n_classes_of(given))
        super()._set_parameters(**given)
        self._start_rejecting()
        return self

    def _n_classes_of(self, given):
        """The number of classes that parameters of the user's speak of."""
        raise NotImplementedError
