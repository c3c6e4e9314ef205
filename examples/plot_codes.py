"""
Codes of rows and of columns
============================

Binary codes, as many as the data need: of rows and of columns, and of features that come together.
"""

import numpy as np
from matplotlib import pyplot as plt

from latently.factorization import IBPIBP, INBMT

rng = np.random.default_rng(0)
column_codes = np.kron(np.eye(3), np.ones((4, 1)))  # three groups of four columns
row_codes = rng.integers(2, size=(150, 2))
core = np.array([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0]])
X = row_codes @ core @ column_codes.T + 0.3 * rng.normal(size=(150, 12))
model = INBMT(random_state=0).fit(X)


def show(tables):
    """Tables side by side."""
    _, axes = plt.subplots(1, len(tables), figsize=(9, 3.4), layout="constrained")
    for ax, (title, table) in zip(axes, tables.items(), strict=True):
        ax.imshow(table, cmap="Greys", aspect="auto", interpolation="nearest")
        ax.set_title(title)


order = np.lexsort(model.row_codes_.T)
codes = {"rows, sorted by code": X[order], "codes of rows": model.row_codes_[order]}
show({**codes, "core": model.core_, "codes of columns": model.column_codes_.T})

# %%
# Four features of three columns each, which come in pairs, but not always:

shapes = np.kron(np.eye(4), np.ones(3))
kinds = np.array([[1, 1, 0, 0], [0, 0, 1, 1]])
there = rng.integers(2, size=(300, 2)) @ kinds * (rng.random((300, 4)) < 0.8)
X = there @ shapes + 0.2 * rng.normal(size=(300, 12))
model = IBPIBP(random_state=0).fit(X)
order = np.lexsort(model.codes_.T)
pictures = {
    "rows, sorted by code": X[order],
    "codes of rows": model.codes_[order],
    "features": model.components_,
}
show({**pictures, "features of categories": model.category_features_})
