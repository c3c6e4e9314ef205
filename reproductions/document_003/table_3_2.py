"""Table 3.2: sizes of the data sets."""

from __future__ import annotations

import numpy as np

from latently.datasets import load, load_noisy_seeds
from reproductions.framework import Reproduction


def measure(settings, seed):
    sets = {
        "user knowledge": load("user_knowledge"),
        "Physical (wine)": load("wine"),
        "iris": load("iris"),
        "seeds with noise": load_noisy_seeds(random_state=seed),
    }
    return [
        {
            "data set": name,
            "rows": len(rows.X),
            "features": rows.X.shape[1],
            "classes": len(np.unique(rows.y)),
            "rows of each class": ", ".join(str(count) for count in np.unique(rows.y, return_counts=True)[1]),
        }
        for name, rows in sets.items()
    ]


REPRODUCTION = Reproduction(
    id="003/table-3.2",
    title="sizes of the data sets",
    source="Document 003, section 3.1.3, Table 3.2",
    data="The four real data sets of Tables 3.3 to 3.6.",
    protocol="Counted.",
    keys=("data set",),
    other_numbers=dict.fromkeys(("257", "258", "403"), "rows, counted"),
    columns={"rows": "", "features": "", "classes": "", "rows of each class": ""},
    published=(
        {"data set": "user knowledge", "rows": 403, "features": 5, "classes": 4},
        {"data set": "Physical (wine)", "rows": 178, "features": 13, "classes": 3},
        {"data set": "iris", "rows": 150, "features": 4, "classes": 3},
        {"data set": "seeds with noise", "rows": 210, "features": 37, "classes": 3},
    ),
    measure=measure,
    remarks=(
        """
        Error rates of user knowledge in Table 3.3 are multiples of 1/257, not of 1/403: they come from the
        258 rows of the official training set, less one.
        """,
        "The seeds have 7 measurements; 30 columns of noise are drawn.",
    ),
)
