"""Every reproduction runs from its data to its files."""

import pytest

from reproductions import available
from tests.reproductions.checks import check_quick_run
from tests.reproductions.data_sets import skip_without

REPRODUCTIONS = available()
ELSEWHERE = {  # run by the tests of their documents, and all but one of those that run on small digits there
    "000/figures-3.2-3.6",
    "000/figures-3.23-3.27",
    "000/figures-3.28-3.45",
    "000/figures-3.46-3.57",
    "003/figure-5.7",
    "004/features",
}
NEEDS = {  # data sets that do not come with scikit-learn
    "000/figures-3.7-3.22": "mnist",
    "000/table-3.1": "mnist",
    "000/section-4.1": "mnist",
    "000/layers-over-draws": "mnist",
    "000/table-5.1": "mnist",
    "000/tables-5.2-5.3": "mnist",
    "000/figures-5.6-5.34": "mnist",
    "000/figures-5.35-5.48": "mnist",
    "000/fine-tuned-layers": "mnist",
    "001/section-4.2": "mnist",
    "003/section-2.5.1": "mnist",
    "003/section-2.5.2": "arrhythmia_odds",
    "003/section-2.5.2-as-published": "arrhythmia_odds",
    "003/figures-6.3-6.6": "binary_alphadigits",
    "003/table-6.1": "urban_land_cover",
    "003/table-6.1-settings": "mnist",
    "003/table-6.2": "binary_alphadigits",
    "002/discriminative-weight": "sonar",
    "002/tables-5.2-5.3": "coil20",
    "002/tables-5.2-5.3-sonar": "sonar",
    "002/tables-5.4-5.5": "umist",
    "003/figures-3.8-3.11": "leuk72_3k",
    "003/table-3.11": "wpbc",
    "003/table-3.12": "urban_land_cover",
    "003/table-3.13": "lsvt",
    "003/table-3.14": "breast_tissue",
    "003/table-3.2": "user_knowledge",
    "003/table-3.3": "user_knowledge",
    "003/table-3.6": "seeds",
    "003/table-3.8": "user_knowledge",
    "003/tables-5.2-5.4": "leuk72_3k",
    "003/table-4.1": "inbmt_pre_usps",
    "003/table-4.3": "umist",
    "003/table-4.3-k-means": "umist",
    "003/table-6.1-mjfa": "mnist",
    "003/table-3.9": "lsvt",
    "003/figures-4.10-4.13": "inbmt_pre_usps",
}
TWINS = {  # the code of another one, on other rows
    "000/layers-over-draws": "000/table-5.1",
    "000/tables-5.2-5.3": "000/table-5.1",
    "000/figures-5.6-5.34": "000/table-5.1",
    "000/figures-5.35-5.48": "000/table-5.1",
    "002/tables-5.2-5.3": "002/tables-5.2-5.3-sonar",
    "002/tables-5.4-5.5": "002/tables-5.2-5.3-sonar",
    "003/section-2.5.2-as-published": "003/section-2.5.2",
    "003/table-3.3": "003/table-3.5",
    "003/table-3.4": "003/table-3.5",
    "003/table-3.6": "003/table-3.5",
    "003/table-3.8": "003/table-3.10",
    "003/table-3.11": "003/table-3.10",
    "003/table-3.12": "003/table-3.10",
    "003/table-3.13": "003/table-3.10",
    "003/table-3.14": "003/table-3.10",
}
IN_PIECES = {"001/section-4.1", "001/success-rates"}  # tests of the document run their pieces


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in TWINS or name in IN_PIECES else [])
        for name in REPRODUCTIONS
        if name not in ELSEWHERE
    ],
)
def test_quick_run(name, tmp_path):
    if name in NEEDS:
        skip_without(NEEDS[name])
    check_quick_run(REPRODUCTIONS[name].run(quick=True), tmp_path)
