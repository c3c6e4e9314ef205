"""The base of estimators whose parameters live in a torch module.

A model is a module, and losses of a batch of rows:

    _module(n_features)        the module, with its initial parameters
    _losses(module, batch)     {"loss": mean over the rows of the batch, ...}; the rest is only recorded
    _optimizer(module)         optional; None for models whose `_losses` update the parameters themselves
    _evaluation(module, batch) optional; what is recorded of validation rows: the losses, by default
    _training(module)          optional; the module with what only its training needs, such as velocities
    _start(module, rows)       optional; sets initial parameters that depend on the rows
    _check_rows(X)             optional; refuses rows, a tensor, that the model is not defined for
    _targets(y)                optional; what batches have as `y`: an array with an entry per row, or None

Everything else is here: options, rows from anywhere, epochs, early stopping, checkpoints, files, devices.

Modules compute in float32. An epoch costs a pass over the rows; memory is that of the module, its optimiser
and, for rows that are not in memory, one chunk of rows.
"""

from __future__ import annotations

from copy import copy, deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch.nn.modules.batchnorm import _BatchNorm

from latently.backend.namespace import is_torch, like, to_numpy
from latently.core.checkpoint import fingerprint
from latently.core.drivers import NotFinite, Objective
from latently.estimators.checks import check_integer, check_number
from latently.estimators.data import check_data, identity_in_order, refuse_missing
from latently.estimators.fitting import FitOptions, warn_at_the_end
from latently.estimators.iterative import IterativeEstimator
from latently.estimators.messages import unchanged_on_failure
from latently.estimators.options import estimator, option
from latently.estimators.parameters import check_names
from latently.estimators.rejection import remember_rows
from latently.estimators.rows import rows_over
from latently.estimators.saving import Tensors
from latently.training.batches import Rows
from latently.training.generators import Generators, drawing_from
from latently.training.loop import train
from latently.training.modules import module_arrays, set_module_arrays

_LARGEST = 1e150  # parameter in float64 whose square is finite


def _check_device(name, value):
    try:
        if not isinstance(value, str):
            raise RuntimeError
        if value != "auto":
            torch.device(value)
    except RuntimeError:
        raise ValueError(
            f'{name} must be "auto" or a device of torch such as "cuda", not {value!r}'
        ) from None


@dataclass(frozen=True)
class Online:
    """The state between two calls of `partial_fit`."""

    module: torch.nn.Module
    training: torch.nn.Module  # around the module
    optimizer: torch.optim.Optimizer | None
    generators: Generators

    @property
    def device(self):
        return self.generators.sampling.device

    def __deepcopy__(self, memo):
        parts: dict[str, Any] = {
            "module": self.module,
            "training": self.training,
            "optimizer": self.optimizer,
        }
        return Online(**deepcopy(parts, memo), generators=self.generators.copied())  # torch cannot copy these


@estimator
class NetworkEstimator(IterativeEstimator):
    """Options and methods of all models that are torch modules.

    Parameters
    ----------
    max_iter : int, default=100
        Maximum number of epochs, which are passes over the rows.
    tol : float, default=1e-4
        With `patience`: an epoch counts as an improvement if the loss decreases by more than `tol` times its
        absolute value (or by more than `tol`, if that value is below one).
    batch_size : int, default=100
        Number of rows of a mini-batch.
    learning_rate : float, default=1e-3
        Step size of the optimiser.
    validation_fraction : float, optional
        Fraction of the rows, drawn at random, that is held out. Their loss is recorded after every epoch, and
        decides on early stopping.
    patience : int, optional
        Stop after so many epochs without an improvement, and restore the parameters of the best epoch. By
        default exactly `max_iter` epochs are made, and the last parameters are kept.
    device : str, default="auto"
        Where to train, such as "cpu" or "cuda". "auto" is the device of the rows, and the CPU for all rows
        that are not torch tensors.
    checkpoint_every : int, default=10
        Epochs between two checkpoints.
    random_state : int, Generator, RandomState or None
        Seed of the initial parameters, the order of the rows, and all draws of the training.
    warm_start : bool, default=False
        Whether `fit` starts from the parameters of the last fit.
    callbacks : list of callables, optional
        Called after every epoch with a record (`number`, `objective`, `gain`, `max_iter`); one that returns
        True stops the fit.
    {options}

    Attributes
    ----------
    module_ : torch.nn.Module
        The fitted module, in evaluation mode.
    history_ : ndarray of shape (n_iter,)
        The objective in each epoch, a mean over the rows while the parameters change; it is noisy.
    losses_ : dict of ndarray of shape (n_passes,)
        All that is recorded of each epoch, by name; "validation loss" is that of the rows held out.
    n_iter_ : int
        Number of epochs up to the parameters that were kept.
    n_passes_ : int
        Number of all epochs, including those after the best one.
    converged_ : bool
        Whether there was no improvement for `patience` epochs.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If X had string column names.
    """

    _: KW_ONLY
    max_iter: int = option(default=100, check=check_integer, least=0)
    tol: float = option(default=1e-4, check=check_number, least=0)
    batch_size: int = option(default=100, check=check_integer, least=1)
    learning_rate: float = option(default=1e-3, check=check_number, least=0)
    validation_fraction: float | None = option(
        default=None, check=check_number, least=0, most=1, or_else=None
    )
    patience: int | None = option(default=None, check=check_integer, least=1, or_else=None)
    device: str = option(default="auto", check=_check_device)
    n_init: ClassVar = 1  # type: ignore[misc]
    accelerate: ClassVar = None  # type: ignore[misc]
    learning_decay: ClassVar = 0.7  # type: ignore[misc]
    learning_offset: ClassVar = 10.0  # type: ignore[misc]

    objective: ClassVar[Objective] = Objective("loss per row", direction=-1)
    watched: ClassVar[str] = "loss"  # the entry of the losses that is the objective
    min_batch_size: ClassVar[int] = 1  # batch normalisation needs 2
    draws_name_generators: ClassVar[bool] = False  # whether all draws of `_losses` use batch.generator
    static_steps: ClassVar[bool] = False  # whether `_losses` is static as `training.graphs` has it
    precision: ClassVar[torch.dtype] = torch.float32  # of the parameters

    # -- what a model is ------------------------------------------------------------------------------

    def _module(self, n_features):
        """The module on the CPU, with its initial parameters; draws need no generator."""
        raise NotImplementedError

    def _losses(self, module, batch):
        """Means over the rows of the batch, by name; "loss" is minimised."""
        raise NotImplementedError

    def _optimizer(self, module):
        """The optimiser; None if `_losses` updates the parameters itself."""
        return torch.optim.Adam(module.parameters(), lr=self.learning_rate)

    def _evaluation(self, module, batch):
        """What is recorded of validation rows, by the names of `_losses`; it must not update the module."""
        return self._losses(module, batch)

    def _training(self, module):
        """The module that is trained: this one, or one around it with what only the training needs.

        `_losses`, `_optimizer` and `_evaluation` get what this returns; the fitted model keeps `module`.
        """
        return module

    def _start(self, module, rows):
        """Set initial parameters that depend on the rows, `training.batches.Rows`; not after a warm start."""

    def _check_rows(self, X):
        """Raise an error for rows, a tensor, that the model is not defined for."""

    def _targets(self, y):
        """What batches have as `y`: an array with an entry for every row, or None."""
        return None

    # -- fitting --------------------------------------------------------------------------------------

    def fit(self, X, y=None, sample_weight=None):
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
            The rows, without missing entries. Accepts arrays and data frames in memory, torch tensors on any
            device, Dask arrays and data frames, the path of a .npy, .zarr, .parquet or .csv file, and any
            iterable that yields the same blocks of rows each time it is iterated over.
        y : array-like of shape (n_samples,), optional
            Targets, for models that have any; ignored by others.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row in the loss.

        Returns
        -------
        self
        """
        self._check_options()
        with unchanged_on_failure(self):
            data = self._data(X, y, sample_weight, reset=True)
            self._fit(data, self._targets(y))
            remember_rows(self, data)
        return self

    def _fit(self, data, targets=None):
        self._check_features(data.n_features)
        rows = self._rows(data, targets)
        generators = Generators.from_seed(self.random_state, rows.device)
        validation = None
        if self.validation_fraction is not None:
            rows, validation = rows.split(self.validation_fraction, generators.shuffling)
        module = self._started(rows, generators, continued=self.warm_start and hasattr(self, "module_"))
        options = FitOptions.of(self, self._identity(data, targets))
        with options.progress() as progress:
            result = self._trained(
                self._training(module).to(rows.device),
                rows,
                generators,
                validation=validation,
                callbacks=[*options.callbacks, *([progress] if progress else ())],
                checkpoint=options.checkpoint,
            )
        _check_finite(module)
        if options.checkpoint and not result.interrupted:
            options.checkpoint.remove()
        warn_at_the_end(result, options if self.patience is not None else replace(options, tol=0.0))
        self.__dict__.pop("_online", None)
        self.module_ = module.eval()
        self.history_, self.n_iter_, self.converged_ = (
            np.array(result.history),
            result.n_iter,
            result.converged,
        )
        self.losses_ = {name: np.array(values) for name, values in result.losses.items()}
        self.n_passes_ = max(map(len, result.losses.values()), default=0)
        self._finish(rows, generators)

    def _trained(self, training, rows, generators, *, validation, callbacks, checkpoint):
        """The result of the training; a model with several stages replaces this."""
        return train(
            lambda batch: self._losses(training, batch),
            training,
            rows,
            generators,
            max_iter=self.max_iter,
            optimizer=self._optimizer(training),
            schedule=self._schedule(),
            validation=validation,
            evaluate=lambda batch: self._evaluation(training, batch),
            callbacks=callbacks,
            checkpoint=checkpoint,
            **self._monitoring(),
        )

    def _monitoring(self):
        """How the training is watched and stopped."""
        return {
            "objective": self.watched,
            "maximise": self.objective.direction > 0,
            "patience": self.patience,
            "tol": self.tol,
            "checkpoint_every": self.checkpoint_every,
            "draws_name_generators": self.draws_name_generators,
            "static": self.static_steps,
            "check": self._refuse_bad_rows,
        }

    def _schedule(self):
        """A function of the epoch that gives a factor of the learning rate; None if it is constant."""
        return None

    def _finish(self, rows, generators):
        """Set what is learnt from the rows after the training, with the fitted module."""

    def _rows(self, data, targets):
        return Rows(
            data,
            targets,
            batch_size=self.batch_size,
            min_batch_size=self.min_batch_size,
            device=self.device,
        )

    def _started(self, rows, generators, *, continued):
        """The module before the first epoch, on the device of the rows."""
        module = self._built(rows.n_features, generators.initialisation).to(rows.device)
        if continued:
            self._continue_with(module)
        else:
            self._start(module, rows)
        return module

    def partial_fit(self, X, y=None, sample_weight=None):
        """Train the network for one epoch over a batch of rows.

        Repeated calls continue with the same momentum, optimiser and generators. A model that was fitted, or
        read from a file, continues from its parameters.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.

        Returns
        -------
        self
        """
        self._check_options()
        with unchanged_on_failure(self):
            known = hasattr(self, "module_")
            self._partial_fit(self._data(X, y, sample_weight, reset=not known), self._targets(y))
        return self

    def _partial_fit(self, data, targets=None):
        self._check_features(data.n_features)
        rows = self._rows(data, targets)
        online = deepcopy(getattr(self, "_online", None))  # so that a failure leaves no trace
        if online is None or online.device != rows.device:
            generators = Generators.from_seed(self.random_state, rows.device)
            module = self._started(rows, generators, continued=hasattr(self, "module_"))
            training = self._training(module).to(rows.device)
            online = Online(module, training, self._optimizer(training), generators)
        result = train(
            lambda batch: self._online_losses(online.training, batch),
            online.training,
            rows,
            online.generators,
            max_iter=1,
            optimizer=online.optimizer,
            **self._monitoring() | {"patience": None, "static": False},
        )
        if result.interrupted:
            raise KeyboardInterrupt
        _check_finite(online.module)
        earlier = vars(self).get("losses_", {})
        if not hasattr(self, "module_"):
            self.history_, self.n_iter_, self.n_passes_, self.converged_ = np.zeros(0), 0, 0, False
        self._online, self.module_ = online, online.module.eval()
        self.history_ = np.append(self.history_, result.history)
        self.losses_ = {
            name: np.append(earlier.get(name, ()), values) for name, values in result.losses.items()
        }
        self.n_iter_ += 1
        self.n_passes_ += 1
        self._finish(rows, online.generators)

    def _online_losses(self, training, batch):
        """The step of `partial_fit`."""
        return self._losses(training, batch)

    def _check_options(self):
        super()._check_options()
        if self.validation_fraction in (0, 1):
            raise ValueError(
                f"validation_fraction={self.validation_fraction} leaves no rows on one side; choose a number "
                "between 0 and 1, or None"
            )
        if self.checkpoint is not None and self.validation_fraction is not None:
            # or a fit that resumes would hold out other rows
            check_integer(
                "random_state (with checkpoint and validation_fraction)", self.random_state, least=0
            )

    def _built(self, n_features, generator):
        """The module with its initial parameters, drawn from this generator."""
        with drawing_from(generator):
            return self._module(n_features).to(self.precision)

    def _refuse_bad_rows(self, X):
        if not bool(torch.isfinite(X).all()):
            refuse_missing(self, bool(torch.isnan(X).any()))
            raise ValueError("Input X contains infinity or a value too large for dtype('float32'); rescale X")
        self._check_rows(X)

    def _continue_with(self, module):
        """Copy the parameters of the last fit."""
        try:
            set_module_arrays(module, module_arrays(self.module_))
        except ValueError as error:
            raise ValueError(
                f"warm_start needs the sizes of the earlier fit, but {error}; use a new estimator"
            ) from None

    def _identity(self, data, targets):
        """Identifies rows and targets, for checkpoints."""
        if self.checkpoint is None:
            return ""
        identity = identity_in_order(data, self.block_size)
        return identity if targets is None else f"{identity}, targets {fingerprint(targets)}"

    # -- using a fitted model -------------------------------------------------------------------------

    def rows_through(self, part, X, out=None, *, dtype=torch.float32, missing=False, floats_per_row=0):
        """Apply a function of tensors to all rows, block by block.

        Parameters
        ----------
        part : callable
            `part(module, X)` takes the fitted module and rows (n, n_features), both in `dtype` on its device,
            and returns a tensor with an entry for each row. It runs without gradients.
        X : array-like of shape (n_samples, n_features), path or blocks
        out : path of a .npy file, optional
            Write the result to this file block by block and return the file, memory-mapped.
        dtype : torch.dtype, default=torch.float32
            torch.float64 for densities.
        missing : bool, default=False
            Whether entries may be missing.
        floats_per_row : int, default=0
            Numbers that `part` keeps for each row besides the activations of the module.

        Returns
        -------
        array
            In float64 (integers keep their dtype), in the namespace and on the device of X.
        """
        check_is_fitted(self)
        data = check_data(self, X, reset=False, missing=missing)
        module = self.module_
        if any(tensor.dtype != dtype for tensor in module.state_dict().values()):
            module = deepcopy(module).to(dtype)
        widths = sum(p.shape[0] for p in module.parameters() if p.ndim > 1)  # about the activations
        floats = data.n_features + widths + floats_per_row
        given = part, module, None if missing else self._check_rows, dtype
        return rows_over(
            self, data, _through, *given, place=None, floats_per_row=floats, out=out, missing=missing
        )

    def to(self, device):
        """Copy the fitted model to another device.

        Parameters
        ----------
        device : str or torch.device
            Such as "cpu" or "cuda"; "numpy" is the CPU.

        Returns
        -------
        estimator
            A copy; this estimator is unchanged.
        """
        check_is_fitted(self)
        moved: Any = copy(self)
        moved.module_ = deepcopy(self.module_).to("cpu" if device == "numpy" else device)
        moved.__dict__.pop("_online", None)
        return moved

    # -- files ----------------------------------------------------------------------------------------

    def _fitted_arrays(self):
        check_is_fitted(self)
        return {}

    def _set_fitted_arrays(self, **given):
        check_names((), given)
        self.n_iter_, self.n_passes_, self.converged_, self.history_ = 0, 0, False, np.zeros(0)

    def _parts(self):
        return {"module": Tensors(module_arrays(self.module_))}

    def _set_parts(self, *, module):
        self._arrays = module  # until `_set_more` tells the number of features

    def _more_header(self):
        losses = {name: values.tolist() for name, values in self.losses_.items()}
        return {"n_features": int(self.n_features_in_), "losses": losses}

    def _set_more(self, *, n_features, losses):
        check_integer("n_features", n_features, least=1)
        arrays = self.__dict__.pop("_arrays")
        with torch.device("meta"):  # without memory: a damaged file may name any size
            set_module_arrays(self._built(n_features, torch.Generator("cpu")), arrays)
        module = self._built(n_features, torch.Generator())
        set_module_arrays(module, arrays)
        _check_usable(module)
        self.module_, self.n_features_in_ = module.eval(), n_features
        self.losses_ = {name: np.array(values, dtype=np.float64) for name, values in losses.items()}
        if not all(values.ndim == 1 and np.all(np.isfinite(values)) for values in self.losses_.values()):
            raise ValueError("its losses must be lists of finite numbers")


def _through(part, module, check, dtype, block):
    """`part` of the rows of a block, in their namespace and on their device."""
    given = is_torch(block.X)
    X = block.X if given else torch.from_numpy(np.array(to_numpy(block.X), dtype=str(dtype)[6:]))
    device = next((tensor.device for tensor in module.state_dict().values()), X.device)
    with torch.no_grad():  # here, since each thread has its own mode
        X_there = X.to(device, dtype)
        if check is not None:
            check(X_there)
        found = part(module, X_there).to(X.device)
    found = found.double() if found.is_floating_point() else found
    return found if given else like(found, block.X)


def _check_usable(module):
    """An error for parameters of a file that no training gives and that make NaN of rows."""
    scale = getattr(module, "scale", None)  # of the rows, by which they are divided
    if scale is not None and not bool((scale >= torch.finfo(scale.dtype).tiny).all()):
        raise ValueError("scale of the module must be positive")
    for part in module.modules():
        variance = getattr(part, "running_var", None) if isinstance(part, _BatchNorm) else None
        if variance is not None and bool((variance < 0).any()):
            raise ValueError("running_var of the module must not be negative")
    for name, tensor in module.state_dict().items():
        if tensor.dtype == torch.float64 and bool((tensor.abs() > _LARGEST).any()):
            raise ValueError(
                f"{name} of the module has entries beyond {_LARGEST:g}, whose squares are infinite"
            )


def _check_finite(module):
    for name, tensor in module.state_dict().items():
        if not bool(torch.isfinite(tensor).all()):
            raise NotFinite(f"{name} of the module is not finite after the last epoch; lower learning_rate")
