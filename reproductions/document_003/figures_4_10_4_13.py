"""Figs. 4.10 to 4.13: images of which one half is erased."""

from __future__ import annotations

from functools import cache

import numpy as np

from latently.factorization import INBMT, MEIBP
from reproductions.document_003._buffets import INBMT_, MEIBP_, fitted, pre_images
from reproductions.framework import Reproduction

USPS, NIST = "Pre-USPS", "Pre-NIST"
FILES = {USPS: ("inbmt_pre_usps", 20, "lower"), NIST: ("inbmt_pre_nist", 15, "upper")}
MEAN, NEIGHBOUR = "mean image", "nearest row"
PRINTED = {USPS: 2, NIST: 1}


@cache  # what is drawn is what was measured
def restored(name, settings, seed):
    """Test images, their classes, and restorations by method."""
    n_init, sweeps, groups = settings
    file, n_test, half = FILES[name]
    train, test, y, shape = pre_images(file, n_test, seed)
    rows = np.arange(test.shape[1]).reshape(shape)
    gone = (rows[shape[0] // 2 :] if half == "lower" else rows[: shape[0] // 2]).ravel()
    erased = test.copy()
    erased[:, gone] = np.nan
    seen = np.setdiff1d(np.arange(test.shape[1]), gone)
    found = {MEAN: np.where(np.isnan(erased), train.mean(axis=0), erased)}
    nearest = np.argmin(((test[:, None, seen] - train[None, :, seen]) ** 2).sum(axis=2), axis=1)
    found[NEIGHBOUR] = np.where(np.isnan(erased), train[nearest], erased)
    sizes = {}
    for method, cls in ((INBMT_, INBMT), (MEIBP_, MEIBP)):
        options = {"init_components": groups, "n_init": n_init, "max_iter": sweeps, "random_state": seed}
        model, seconds = fitted(cls(**options), train)
        found[method] = model.impute(erased)
        sizes[method] = {"K": model.n_components_, "seconds": seconds}
    means = np.array(class_means(file, train))
    return test, y, gone, shape, found, sizes, means, erased


def class_means(file, train):
    """Means of the classes of the training rows, which come in equal parts and in order."""
    return [part.mean(axis=0) for part in np.array_split(train, 4 if "usps" in file else 3)]


def measure(settings, seed):
    records = []
    for name in settings["data sets"]:
        key = settings["starts"], settings["sweeps"], settings["groups"]
        test, y, gone, _, found, sizes, means, _ = restored(name, key, seed)
        for method, images in found.items():
            error = float(np.mean((images - test)[:, gone] ** 2))
            # an error: the restored half is nearest to the mean of another class
            distance = ((images[:, None, gone] - means[None, :, gone]) ** 2).sum(axis=2)
            record = {"data": name, "method": method, "MSE of the half": error}
            records.append(
                record | {"errors": int(np.sum(distance.argmin(axis=1) != y))} | sizes.get(method, {})
            )
    return records


def draw(name):
    def figure(result):
        from reproductions.plots.planes import image_lines

        settings = result.settings
        key = settings["starts"], settings["sweeps"], settings["groups"]
        test, _, _, shape, found, _, _, erased = restored(name, key, result.seed)
        lines = {"image": test, "seen": np.nan_to_num(erased)} | found
        return image_lines(lines, tuple(int(s) for s in shape), title=f"{name}: one half erased")

    return figure


REPRODUCTION = Reproduction(
    id="003/figures-4.10-4.13",
    title="images of which one half is erased, restored from their codes",
    source="Document 003, section 4.5.4, Figs. 4.10 to 4.13",
    data="""
        Pre-USPS: 400 images of 16 x 16 pixels, digits 0 to 3. Pre-NIST: 600 of 32 x 32, letters a, c, d. The
        test images of the source are not public: 20 and 15 images, equally many of each class, drawn from the
        seed, are left out of the fit and lose their lower and upper half.
    """,
    protocol="""
        iNBMT and ME-IBP are fitted to the other images; codes of a test image follow from its visible half,
        and its reconstruction fills the other. The source counts errors by eye. Here a restoration is wrong
        if its half is nearer to the mean half of another class; the mean image and the half of the training
        row whose visible half is nearest are beside it.
    """,
    keys=("data", "method"),
    columns={"errors": "", "MSE of the half": ".4f", "K": "", "seconds": ".1f"},
    published=[{"data": name, "method": INBMT_, "errors": value} for name, value in PRINTED.items()],
    measure=measure,
    better={"errors": "lower"},
    excluded=lambda record, measure: "on other images",
    settings={"data sets": (USPS, NIST), "starts": 2, "sweeps": 40, "groups": 20},
    quick_settings={"data sets": (USPS,), "starts": 1, "sweeps": 2, "groups": 5},
    remarks=(
        """
        The errors are not those of the source, which counts by eye, on images that are not public. By
        our rule iNBMT has 6 of 20 and 8 of 15, more than the 2 and 1 printed, and ME-IBP 3 and 6. The
        nearest training row, which learns nothing, has 2 and 7, so this is no task on which codes
        stand out; their squared error is the lower one on letters.
        """,
        """
        Sweeps were limited to 40 after the search of starts; whether more change the numbers was not
        examined.
        """,
    ),
    figures={"-usps": draw(USPS)},
)
