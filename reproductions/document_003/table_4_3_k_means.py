"""Table 4.3, the rows of k-means: clusters of Coil-20 and UMIST."""

from __future__ import annotations

from joblib import Parallel, delayed
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from latently.metrics import clustering_accuracy, purity
from reproductions.document_003._protocol import over_draws, seed_of
from reproductions.document_003.table_4_3 import COIL, MEASURES, N_CLASSES, PRINTED, UMIST, images
from reproductions.framework import Reproduction

KEYS = ("data", "method")
ONE, LOWEST = "k-means, one start", "k-means, start of lowest cost"
ROWS = {COIL: 1440, UMIST: 575}


def measure(settings, seed):
    records = []
    for name in settings["data sets"]:
        X, y = images(name, settings.get("every", 1))
        found = Parallel(n_jobs=settings["n_jobs"])(
            delayed(one_start)(X, y, seed_of(seed, draw)) for draw in range(settings["draws"])
        )
        best = min(found, key=lambda one: one["cost of a row"])
        own = {"data": name, "rows": len(X)}
        records.append(own | {"method": ONE} | over_draws(found, ()))
        records.append(own | {"method": LOWEST} | best)
    return records


def one_start(X, y, seed):
    model = KMeans(N_CLASSES, n_init=1, random_state=seed).fit(X)
    return {
        "accuracy": float(clustering_accuracy(y, model.labels_)),
        "NMI": float(normalized_mutual_info_score(y, model.labels_)),
        "purity": float(purity(y, model.labels_)),
        "cost of a row": float(model.inertia_ / len(X)),
    }


REPRODUCTION = Reproduction(
    id="003/table-4.3-k-means",
    title="clusters of Coil-20 and UMIST by k-means",
    source="Document 003, section 4.5.5, Table 4.3, the rows of k-means",
    data="""
        Coil-20: 1440 images of 64 x 64 pixels, 20 objects. UMIST: 575 of 28 x 23, 20 people. Grey levels are
        divided by 255.
    """,
    protocol=f"""
        20 clusters, scikit-learn's k-means, pixels as they are. "{ONE}": means and standard deviations over
        seeds, one k-means++ start each, which is compared with the print ("the best average result").
        "{LOWEST}": that of lowest cost among them. Accuracy is that of the best one-to-one assignment.
    """,
    keys=KEYS,
    columns={
        **{name: ".4f" for measure in MEASURES for name in (measure, f"{measure}, spread")},
        "cost of a row": ".3f",
        "draws": "",
    },
    published=[
        {"data": data, "method": method} | dict(zip(MEASURES, numbers, strict=True))
        for data, numbers in zip((COIL, UMIST), PRINTED["k-means"], strict=True)
        for method in (ONE, LOWEST)
    ],
    measure=measure,
    settings={"data sets": (COIL, UMIST), "draws": 20, "n_jobs": -1},
    quick_settings={"data sets": (UMIST,), "draws": 2, "every": 4, "n_jobs": 1},
    better=dict.fromkeys(MEASURES, "higher"),
    counted=lambda record: record["method"] == ONE,
    missed="""
        Accuracy on UMIST. The start of lowest cost does no better; NMI and purity are above the print. The
        reason is not known.
    """,
)
