"""Beyond the source: one and two layers trained together, beside those that were trained one by one."""

from __future__ import annotations

import time

from latently.factorization import DeepNLMF
from reproductions.document_000._layers import (
    ABOUT,
    COLUMNS,
    WRONG,
    Setting,
    digits,
    layer,
    measured,
    quietly,
)
from reproductions.framework import Reproduction

PUBLISHED = Setting(100, gamma=0.2, sigma2=1e-3)
BOTH = "(100,), settings of Table 5.1", "(100,), fine-tuned"


def measure(settings, seed):
    sizes = settings["per_class"], settings["n_test"]
    first = Setting(settings["stacks"][0][0][0], gamma=0.2, sigma2=1e-3)
    model, seconds = layer(first, *sizes, settings["greedy_sweeps"], seed)
    records = [{"layers": f"{(first.d,)}, settings of Table 5.1", **measured(model, seconds, *sizes, seed)}]
    for sizes_of_layers, sigma2, gamma in settings["stacks"]:
        model, seconds = tuned(sizes_of_layers, sigma2, gamma, settings, seed)
        cost = model.fine_tune_history_
        found = measured(model, seconds, *sizes, seed)
        told = {"cost before": float(cost[0]), "cost after": float(cost[-1]), "steps": len(cost) - 1}
        told |= {"sigma2": sigma2, "gamma": gamma}
        records.append({"layers": f"{tuple(sizes_of_layers)}, fine-tuned", **found, **told})
    return records


def tuned(sizes, sigma2, gamma, settings, seed):
    """Layers of these sizes, trained one after the other and then together."""
    X, y, _, _ = digits(settings["per_class"], settings["n_test"], seed)
    began = time.perf_counter()
    model = DeepNLMF(
        tuple(sizes),
        alpha=settings["penalty"],
        beta=settings["penalty"],
        gamma=gamma,
        sigma2=sigma2,
        max_iter=settings["greedy_sweeps"],
        tol=1e-5,
        fine_tune=True,
        fine_tune_iter=settings["steps"],
        random_state=seed,
    )
    return quietly(model, X, y), time.perf_counter() - began


def about_one(told):
    before, after = (told(WRONG, layers) for layers in BOTH)
    return f"""
        One layer that is trained through its inference has {after:.2f} %, {before - after:.2f} below the same
        layer with the settings of Table 5.1, at an e_r within
        {told("e_r", BOTH[1]) / told("e_r", BOTH[0]) - 1:.1%} of its.
    """


def about_two(told):
    two = "(100, 50), fine-tuned"
    return f"""
        Two layers have {told(WRONG, two):.2f} %, one {told(WRONG, BOTH[1]):.2f} %, though fine-tuning
        lowers the total cost of two by {1 - told("cost after", two) / told("cost before", two):.0%}. 50
        units rebuild less, and what they add is no better to tell classes by. On other splits of the
        training images, in an earlier run: with 3000 rows two layers had 11.1 % and one 11.4 %; with 7000
        rows two had 10.0 % (100 and 50 units) and 10.2 % (100 and 100), one 9.8 %, one without fine-tuning
        9.9 %.
    """


REPRODUCTION = Reproduction(
    id="000/fine-tuned-layers",
    title="layers of the non-linear factorisation trained together",
    source="Not in document 000, whose layers are trained one by one; its Table 5.1 has 9.2 % for one layer",
    data=ABOUT,
    protocol="""
        After one layer after the other, all parameters descend on the total cost at the sources that are
        inferred without labels. Of a dozen settings of the penalties, sigma^2, gamma and sizes, tried on 3000
        training images, these had the fewest errors on 2000 other training images.
    """,
    keys=("layers",),
    other_numbers=dict.fromkeys(
        ("3000", "7000", "11.1", "11.4", "10.0", "10.2", "9.8", "9.9"), "an earlier run, on other splits"
    ),
    columns={
        "sigma2": "g",
        "gamma": "g",
        **COLUMNS,
        "cost before": ".0f",
        "cost after": ".0f",
        "steps": "d",
    },
    published=(),
    measure=measure,
    settings={
        "per_class": 1000,
        "n_test": None,
        "stacks": (((100,), 0.2, 1.0), ((100, 50), 0.05, 0.3)),  # sizes, sigma2, gamma
        "penalty": 0.05,
        "greedy_sweeps": 10,
        "steps": 30,
    },
    quick_settings={
        "per_class": 20,
        "n_test": 100,
        "stacks": (((6,), 0.2, 1.0), ((6, 4), 0.05, 0.3)),
        "greedy_sweeps": 2,
        "steps": 2,
    },
    remarks=(
        about_one,
        about_two,
    ),
)
