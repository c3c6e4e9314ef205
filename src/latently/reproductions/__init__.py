"""Published tables and figures, run again with this library and set beside their printed numbers.

python -m latently reproduce 003/table-3.5

A reproduction is one module of a package named after its source document (`d003/table_3_5.py`) that holds a
`REPRODUCTION`. Nothing else has to be told of a new one.
"""

from __future__ import annotations

import importlib
import pkgutil

from latently.reproductions._framework import Reproduction, Result

__all__ = ["Reproduction", "Result", "available"]


def available():
    """All reproductions by id, in the order of their sources.

    Returns
    -------
    dict of str to Reproduction

    Examples
    --------
    >>> from latently.reproductions import available
    >>> available()["003/table-3.5"].title
    'MCFA, PCA+GMM and mPPCA on iris'
    """
    modules = (
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(__path__, prefix=f"{__name__}.")
        if not module.ispkg and not module.name.rpartition(".")[2].startswith("_")
    )
    found = (module.REPRODUCTION for module in modules)
    return {reproduction.id: reproduction for reproduction in found}
