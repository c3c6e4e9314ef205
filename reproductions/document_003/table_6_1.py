"""Table 6.1: the joint autoencoder as a classifier."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from latently.datasets import load
from latently.deep import JointAutoencoder
from reproductions.document_003._joint import CHOSEN, mnist, of_seeds, trained, training_rows
from reproductions.framework import Reproduction
from reproductions.kept import kept

JOINT, OWN, LOGISTIC = "joint autoencoder, layers of the source", "joint autoencoder, our layers", "logistic"
SOURCE = {"architecture": "source", "n_factors": 4, "learning_rate_schedule": "cosine"}


def of_mnist(options, settings, seed):
    n = settings["rows_of_each"]
    key = {"options": options, "settings": n, "seed": seed}
    return kept("error", key, lambda: 1 - trained(options, n, seed).score(*mnist("test")))


def of_land_cover(method, settings, seed):
    key = {"method": method, "epochs": settings["land_cover_epochs"], "seed": seed}
    return kept("land-cover", key, lambda: land_cover_error(method, settings, seed))


def land_cover_error(method, settings, seed):
    torch.set_num_threads(1)
    rows = load("urban_land_cover")
    if method == LOGISTIC:
        model = LogisticRegression(max_iter=2000)
    else:
        layers = {"architecture": "source", "n_factors": 10} if method == JOINT else {}
        epochs = settings["land_cover_epochs"]
        model = JointAutoencoder(**layers, batch_size=20, max_iter=epochs, random_state=seed)
    fitted = make_pipeline(StandardScaler(), model).fit(rows.X_train, rows.y_train)
    return 1 - fitted.score(rows.X_test, rows.y_test)


def logistic_error(settings, seed):
    X, y = training_rows(settings["rows_of_each"], seed)
    model = LogisticRegression(C=0.1, max_iter=100).fit(X, y)
    return 1 - model.score(*mnist("test"))


def networks(settings):
    """Of MNIST, by method."""
    return {OWN: settings["options"], JOINT: SOURCE | {"max_iter": settings["source_epochs"]}}


def pieces(settings, seed):
    """What can run at the same time; of the same name, one after another."""
    for own in of_seeds(settings, seed):
        for method, options in networks(settings).items():
            yield f"{method}, {own}", partial(of_mnist, options, settings, own)
        for method in (JOINT, OWN):
            yield f"land cover, {own}", partial(of_land_cover, method, settings, own)


def measure(settings, seed):
    seeds = of_seeds(settings, seed)
    found = {
        ("urban land cover", method): [of_land_cover(method, settings, own) for own in seeds]
        for method in (JOINT, OWN)
    }
    found["urban land cover", LOGISTIC] = [of_land_cover(LOGISTIC, settings, seed)]
    for method, options in networks(settings).items():
        found["MNIST", method] = [of_mnist(options, settings, own) for own in seeds]
    found["MNIST", LOGISTIC] = [logistic_error(settings, seed)]
    return [
        {
            "data": data,
            "method": method,
            "fits": len(errors),
            "error": float(np.mean(errors)),
            "sd": float(np.std(errors)),
            "least": float(np.min(errors)),
            "largest": float(np.max(errors)),
        }
        for (data, method), errors in found.items()
    ]


def missed(told):
    return f"""
        The network of the source on MNIST, with settings as far as they are printed. Layers chosen on
        training rows have {told("error", "MNIST", "joint autoencoder, our layers"):.4f} for the printed
        0.0324.
    """


REPRODUCTION = Reproduction(
    id="003/table-6.1",
    title="the joint autoencoder as a classifier",
    source="Document 003, section 6.2.5, Table 6.1",
    data="""Urban land cover (168 training and 507 test rows of 147 features and 9 classes, standardised), and
        MNIST: 1000 training rows of each digit, drawn at random for each seed, and the 10,000 official test
        rows. The Chinese characters HZ-20 and HZ-297 (CASIA-HWDB) are not public.""",
    protocol="""
        Our layers for MNIST are convolutions with 16 factors, ReLU and a cosine schedule, those for land
        cover the defaults. Channels, epochs and the weight of the cross-entropy were chosen on 8000 of the
        10,000 training rows by the other 2000 ("Table 6.1, settings"); no test row was used. Fits differ in
        the seed, which also draws the training rows of MNIST. The layers of the source have 10 factors for
        land cover and 4 for MNIST, as there.
    """,
    keys=("data", "method"),
    columns={"fits": "d", "error": ".4f", "sd": ".4f", "least": ".4f", "largest": ".4f"},
    published=[
        {"data": "urban land cover", "method": JOINT, "error": 0.4437},
        {"data": "MNIST", "method": JOINT, "error": 0.0324},
    ],
    measure=measure,
    better={"error": "lower"},
    tested=lambda record, measure: 10_000 if record["data"] == "MNIST" else 507,
    missed=missed,
    remarks=(
        """
        With our layers every one of ten fits is below the printed error of MNIST; what matters most is the
        weight of the cross-entropy ("Table 6.1, settings").
        """,
        """
        The layers of the source are shown as they are: four factors, the default weight of the cross-entropy,
        and no choice by training rows. On MNIST they are no better than logistic regression on pixels, so the
        printed error was not reached with what is printed of its network.
        """,
    ),
    settings={
        "rows_of_each": 1000,
        "options": CHOSEN,
        "source_epochs": 16,
        "land_cover_epochs": 60,
        "seeds": 10,
    },
    quick_settings={
        "rows_of_each": 20,
        "options": CHOSEN | {"max_iter": 1},
        "source_epochs": 1,
        "land_cover_epochs": 2,
        "seeds": 1,
    },
)
