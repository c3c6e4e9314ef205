"""Labels of rows: the components that rows may come from, or their classes."""

from __future__ import annotations

from numbers import Real

import numpy as np
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from latently.backend.namespace import is_native, to_numpy, without_mask
from latently.estimators.checks import errors_name
from latently.estimators.messages import warn_user
from latently.estimators.rows import in_main_memory

UNLABELLED = -1


@errors_name("y")
def component_labels(y, n_rows, n_components):
    """(N, K) bool: the components each row may come from; None if y has no information on components.

    scikit-learn passes targets of all kinds to estimators that do not use them, so a y that cannot mean
    components is ignored with a warning. If y contains -1, it must mean components, and an error is raised.
    """
    if is_native(y):
        y = to_numpy(y)
    y = np.asarray(without_mask(y))
    if y.ndim not in (1, 2) or (y.ndim == 2 and y.shape[1] not in (1, n_components)):
        raise ValueError(
            f"y must have one entry per row, or a column for each of the {n_components} components, "
            f"not shape {y.shape}"
        )
    if len(y) != n_rows:
        raise ValueError(f"y must have one entry per row, {n_rows} in all, not {len(y)}")
    zeros_and_ones = y.ndim == 2 and y.shape[1] > 1 and y.dtype.kind in "iu" and np.isin(y, (0, 1)).all()
    if zeros_and_ones or (y.ndim == 2 and y.dtype == bool):
        y = y.astype(bool)
        if not y.any(axis=1).all():
            row = np.flatnonzero(~y.any(axis=1))[0]
            raise ValueError(f"y allows no component for row {row}; allow all components if it is unknown")
        return None if y.all() else y
    if y.dtype.kind == "f" and np.isnan(y).any():
        raise ValueError("y contains NaN; use -1 for rows whose component is not known")
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    whole = y.ndim == 1 and y.dtype.kind in "iuf" and bool(np.all(y == np.round(y)))
    fits = whole and bool(np.all((y >= -1) & (y < n_components)))
    if whole and not fits and np.any(y == -1):
        raise ValueError(
            f"y must hold components from 0 to {n_components - 1}, or -1 where unknown, "
            f"not {y[(y < -1) | (y >= n_components)][0]}"
        )
    if n_components == 1:
        return None
    if not fits:
        warn_user(f"y is ignored: it does not hold components (0 to {n_components - 1}, -1 where unknown)")
        return None
    if np.all(y == -1):
        return None
    return (y[:, None] == np.arange(n_components)) | (y[:, None] == -1)


@errors_name("y")
def class_labels(estimator, y, n_rows, classes=None):
    """Indices (n_rows,) of the sorted classes, -1 for unlabelled rows; and the classes.

    -1 marks unlabelled rows if there are at least two other labels; otherwise it is a class, so that -1 and 1
    can be used as two classes. If labels are text, "-1" is a class like any other, with a warning.
    """
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    here = in_main_memory(y) if is_native(y) or hasattr(y, "compute") else without_mask(y)
    y = column_or_1d(here, warn=True)
    if len(y) != n_rows:
        raise ValueError(f"y must have one label per row, {n_rows} in all, not {len(y)}")
    unlabelled = np.array(
        [isinstance(label, Real) and label == UNLABELLED for label in y.tolist()], dtype=bool
    )
    if classes is not None and UNLABELLED in list(classes):
        unlabelled[:] = False
    known = y[~unlabelled]
    if len(known) == 0 and classes is None:
        raise ValueError("every row is unlabelled (-1), so there are no classes to learn")
    if known.dtype == object and all(isinstance(label, str) for label in known):
        known = known.astype(str)
    takes_unlabelled = getattr(estimator, "takes_unlabelled", True)
    cure = "; use the number -1 for unlabelled rows" if takes_unlabelled else "; drop unlabelled rows"
    if len(known):
        if any(isinstance(label, float) and np.isnan(label) for label in known.tolist()):
            raise ValueError(f"y contains NaN{cure}")
        assert_all_finite(known, input_name="y")
        if known.dtype == object:
            kinds = " and ".join(sorted({type(label).__name__ for label in known}))
            raise ValueError(f"Unknown label type: y must hold numbers or text, not objects: {kinds}{cure}")
        check_classification_targets(known)
    found = np.unique(known)
    if classes is None and takes_unlabelled and found.dtype.kind == "U" and str(UNLABELLED) in found:
        warn_user(
            "y holds the text '-1', which is taken for a class; if it marks unlabelled rows, make it the "
            "number -1 in an array of objects: y = y.astype(object); y[y == '-1'] = -1"
        )
    if classes is None and len(found) < 2 and unlabelled.any() and y.dtype != object:
        unlabelled[:], known = False, y
        found = np.unique(y)
    if classes is not None:
        unknown = found[~np.isin(found, classes)]
        if len(unknown):
            raise ValueError(
                f"y has the class {unknown.tolist()[0]!r}, which is not among {np.asarray(classes).tolist()}"
            )
        found = np.asarray(classes)
    codes = np.full(n_rows, UNLABELLED)
    codes[~unlabelled] = np.searchsorted(found, known)
    return codes, found


def checked_classes(classes, n_classes):
    """Labels of the classes of a model with known parameters, in ascending order; 0, 1, ... by default."""
    labels = np.arange(n_classes) if classes is None else np.asarray(classes)
    if labels.dtype == object and all(isinstance(label, str) for label in labels.flat):
        labels = labels.astype(str)
    if labels.shape != (n_classes,) or len(np.unique(labels)) != n_classes:
        raise ValueError(f"classes must be {n_classes} different labels, not {classes!r}")
    if labels.dtype.kind not in "biufU" or (labels.dtype.kind == "f" and not np.isfinite(labels).all()):
        raise ValueError(f"classes must be text or finite numbers, not {classes!r}")
    if np.any(labels[1:] < labels[:-1]):
        raise ValueError("classes must be in ascending order, as the parameters of the classes are")
    return labels


def classes_to_come(classes):
    """Labels given to the first `partial_fit`, in any order, as `classes_`."""
    found = np.unique(classes)
    return checked_classes(found, len(found))


def classes_for_file(classes):
    """The classes as JSON has them."""
    return (classes.astype(np.float64) if classes.dtype.kind == "f" else classes).tolist()


def classes_from_file(labels, n_classes):
    if not isinstance(labels, list) or len({type(label) for label in labels}) != 1:
        raise ValueError("classes must be a list of labels of one type")
    return checked_classes(labels, n_classes)
