"""The base of models with a kernel of their own that EM fits to rows as they are, in the user's units."""

from __future__ import annotations

import numpy as np

from latently.backend.namespace import zeros
from latently.core.frame import Frame
from latently.core.summary import Summary
from latently.estimators.data import check_same_device
from latently.estimators.em import fit_em, keep_result, known_start, partial_fit
from latently.estimators.fitted import FittedModel
from latently.estimators.iterative import IterativeEstimator
from latently.estimators.options import estimator
from latently.estimators.parameters import store
from latently.estimators.problem import Problem, summarised
from latently.estimators.starts import sample_size


@estimator
class KernelEstimator(IterativeEstimator):
    """Fitting, starting values, `partial_fit`, files and devices for any kernel.

    A subclass writes the methods of the first section, and `_parameters` and `_sizes`, which say what its
    fitted arrays are.
    """

    partial_fit = partial_fit

    # -- what a subclass provides ---------------------------------------------------------------------

    def _kernel(self, summary=None):
        """The kernel for rows with this summary, or of a fitted model if there is none."""
        raise NotImplementedError

    def _to_kernel(self, fitted):
        """Fitted arrays, by name, as parameters of the kernel."""
        raise NotImplementedError

    def _from_kernel(self, params):
        """Parameters of the kernel as fitted arrays, by name."""
        raise NotImplementedError

    def _own_start(self, problem, given, progress):
        """Starting values for all that was not given, and whether the user interrupted the search for them.

        `problem.in_main_memory().sample()` is a block of rows to start from.
        """
        raise NotImplementedError

    def _check_rows(self, data, summary):
        """Raise an error or warn if the model cannot have generated such rows."""

    # -- fitting --------------------------------------------------------------------------------------

    def _fit(self, data):
        problem = self._problem(data)
        keep_result(self, problem, self._result(problem))

    def _result(self, problem):
        return fit_em(
            self,
            problem,
            start=lambda progress: self._start(problem, progress),
            example=lambda: self._example(problem),
        )

    def _problem(self, data):
        summary = summarised(self, data, sample_size(self, self._n_components()))
        self._check_rows(data, summary)
        frame = Frame.identity(summary.mean)
        return Problem(self._kernel(summary), data, frame, summary, self._n_components(), self.block_size)

    def _problem_of_fitted(self, data):
        """The problem of rows like those that the model was fitted to."""
        fitted = self._fitted_model()
        check_same_device(f"{type(self).__name__}.partial_fit", data, fitted.place)
        summary = Summary.of_moments(fitted.frame.shift, fitted.frame.scale)
        return Problem(fitted.kernel, data, fitted.frame, summary, self._n_components(), self.block_size)

    def _start(self, problem, progress=None):
        start, given = known_start(self, problem, self._to_kernel)
        return self._own_start(problem, given, progress) if start is None else (start, False)

    def _example(self, problem):
        """Parameters of the right shapes, to read a checkpoint with."""
        sizes = self._sizes(problem.data.n_features)
        halves = {entry.name: np.full(entry.shape_for(sizes), 0.5) for entry in self._parameters()}
        return problem.on_device(self._to_kernel(halves))

    # -- a fitted model -------------------------------------------------------------------------------

    def _n_components(self):
        return getattr(self, "n_components", 1)

    def _keep(self, params):
        store(self, self._from_kernel(params))

    def _fitted_model(self) -> FittedModel:
        fitted = self._fitted_arrays()
        place = next(iter(fitted.values()))
        frame = Frame.identity(zeros((self.n_features_in_,), place))
        params = self._to_kernel(fitted)
        return FittedModel(self._kernel(), params, frame, self._n_components(), self.n_features_in_, place)
