"""Published tables and figures, run again with latently and set beside their printed numbers.

    python -m reproductions 003/table-3.5        # from the root of the checkout, or make reproduce ARGS=...

Each source document has one folder: `document_003/table_3_5.py` holds a `REPRODUCTION`, and its full run with
seed 0 is kept as `document_003/results/table-3.5.*`. A new module is found by itself. `framework` says what a
reproduction is, `judgement` compares with print, `overview` writes the page
about all of them, `inventory` lists what the documents have, `plots` draws. Nothing here is installed with
latently, of which only public names are used.
"""

from __future__ import annotations

import importlib
import pkgutil

from reproductions.framework import Reproduction, Result

__all__ = ["Reproduction", "Result", "available"]


def available():
    """All reproductions by id, in the order of their sources.

    Returns
    -------
    dict of str to Reproduction

    Examples
    --------
    >>> from reproductions import available
    >>> available()["003/table-3.5"].title
    'MCFA, PCA+GMM and mPPCA on iris'
    """
    documents = [
        importlib.import_module(f"{__name__}.{package.name}")
        for package in pkgutil.iter_modules(__path__)
        if package.name.startswith("document_")
    ]
    modules = (
        importlib.import_module(f"{document.__name__}.{module.name}")
        for document in documents
        for module in pkgutil.iter_modules(document.__path__)
        if not module.name.startswith("_")
    )
    found = (module.REPRODUCTION for module in modules)
    return {reproduction.id: reproduction for reproduction in found}
