"""The catalogue of real data sets: description, source and checksum of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from latently.datasets import _public

Arrays = dict[str, Any]  # of NumPy arrays


@dataclass(frozen=True)
class Entry:
    title: str  # one line
    source: str  # a sentence: authors and public source
    licence: str  # as the originators generally state it
    sha256: str  # of the file <name>.npz
    bundled: Callable[[], Arrays] | None = None  # scikit-learn's own copy
    download: Callable[[str], Arrays] | None = None  # from its public source, using a temporary folder
    content: str | None = None  # content_digest of the arrays, for data sets that may come from other sources

    @property
    def description(self) -> str:
        return f"{self.title}. {self.source} Licence: {self.licence}."


UCI = "https://archive.ics.uci.edu/dataset"
OPENML = "https://www.openml.org/d"

CATALOGUE = {
    "mnist": Entry(
        title="70 000 handwritten digits, 28 x 28 pixels",
        source=f"MNIST by LeCun, Cortes and Burges; {OPENML}/554.",
        licence="usually given as CC BY-SA 3.0",
        sha256="553a80b0aaee5d45a23bbc9db3ed68be284f19e2d30e5bee8dc319ebb7137f1c",
        download=_public.mnist,
        content="ef6e3200e7729d9159409f2a10e3f3d94bfc84be44b9629a124d85c655d8dca6",
    ),
    "fashion_mnist": Entry(
        title="70 000 pictures of ten kinds of garment, 28 x 28 pixels",
        source=f"Fashion-MNIST by Xiao, Rasul and Vollgraf; {OPENML}/40996.",
        licence="MIT",
        sha256="8170b818b26da1ff80d5d105e99fe6de9ff7798fcdf5a234cb71f938eec77879",
        download=_public.fashion_mnist,
        content="9fda38c4c1bcbc70dfbdf7127853d5b7a6768dd88dd534f09059701684d8f766",
    ),
    "usps": Entry(
        title="9298 digits from envelopes, 16 x 16 pixels between 0 and 1",
        source=f"US Postal Service zip codes, Le Cun and others (1990); {OPENML}/41082.",
        licence="none stated; research use",
        sha256="fe8274af6bcd22363497406880dac40b47007d96611e744efa2da8c36d2c1fe5",
        download=_public.usps,
        content="689e471a13339d9d20977a7d7e0739d37a89ed81d2cec0c356715d3b4b5ce948",
    ),
    "inbmt_pre_usps": Entry(
        title="400 digits 0 to 3, 16 x 16 pixels between 0 and 1",
        source="Pre-USPS, made by Yang for iNBMT; https://github.com/zzy8989/Data-iNBMT.",
        licence="none stated",
        sha256="4a747ad54e8c3758c5716c16063d921dc3699f6b0f5aa982eb8ef0efef3e725a",
    ),
    "inbmt_pre_nist": Entry(
        title="600 letters a, c and d, 32 x 32 binary pixels",
        source=(
            "Pre-NIST, made by Yang for iNBMT from NIST's handprinted forms; "
            "https://github.com/zzy8989/Data-iNBMT."
        ),
        licence="none stated",
        sha256="49d718ef2150ef182ff41395acdb2344b41875c1861f5b51036353f293b65ba4",
    ),
    "coil20": Entry(
        title="20 objects from 72 angles, 32 x 32 pixels (`X`) and 64 x 64 (`X_64`)",
        source=(
            "COIL-20 by Nene, Nayar and Murase (1996), box averages of the processed 128 x 128 images; "
            "https://www.cs.columbia.edu/CAVE/software/softlib/coil-20.php."
        ),
        licence="Columbia University; research use, not commercial",
        sha256="41f8642e57f467b144c229dad6a57010a8bc50b854e4d8f579705d3a86e79c8a",
    ),
    "umist": Entry(
        title="575 faces of 20 people from profile to front, 28 x 23 pixels (`X`) and 112 x 92 (`X_full`)",
        source=(
            "UMIST (Sheffield) faces by Graham and Allinson (1998); https://www.visioneng.org.uk/datasets/. "
            "Only 565 of the images differ."
        ),
        licence="research use",
        sha256="2e385db781e0fc2fa213667f781d9651955b2e427c0b992211ba30026fdf6dfd",
    ),
    "olivetti": Entry(
        title="400 faces of 40 people, 64 x 64 pixels",
        source="Olivetti (ORL) faces, AT&T Laboratories Cambridge; sklearn.datasets.fetch_olivetti_faces.",
        licence="free use with credit to AT&T Laboratories Cambridge",
        sha256="a8e4708380771d661986e5edf274f38020b4dfd265500aaf2472fc0740e3f1c7",
        download=_public.olivetti,
        content="1a841afae82fdaab9ae991524a7390a4e3b17a6bee7ecee6b2ee872c76b420ff",
    ),
    "cbcl_faces": Entry(
        title="2429 faces without labels, 19 x 19 pixels",
        source="MIT CBCL face database 1; http://cbcl.mit.edu/software-datasets/FaceData2.html.",
        licence="research use only",
        sha256="cc31f8bd0e5acd5642afa4264f978dfc87040c4558eea2f7c9463072dce1d334",
    ),
    "binary_alphadigits": Entry(
        title="1404 handwritten digits and capitals, 20 x 16 binary pixels",
        source="Binary Alphadigits by Lucas, through Roweis; https://cs.nyu.edu/~roweis/data.html.",
        licence="none stated",
        sha256="213f0cda6c42bcba0e921e7b4b86ccf02ab01b9fae509b6ab8fd9fb4370c8d74",
    ),
    "iris": Entry(
        title="150 irises of 3 species, 4 measurements",
        source=f"Iris by Fisher (1936); {UCI}/53/iris.",
        licence="CC BY 4.0",
        sha256="3908c6d19c5cabd5b7e3b1e7d0c81b325c92f2a62f7603efb144bc835effe2fd",
        bundled=_public.iris,
        content="57905eddaf4bd732beb5cd7ea47c5a51b526cf7060f3085740f44907cee2a9de",
    ),
    "wine": Entry(
        title="178 wines of 3 cultivars, 13 chemical measurements",
        source=f"Wine by Aeberhard and Forina; {UCI}/109/wine.",
        licence="CC BY 4.0",
        sha256="86021ac0497938442324ed0c1bd4516c429da44e78ae29f1dffddc6aea3a848f",
        bundled=_public.wine,
        content="b026a812d3e82880266dfcd50a59973cfc6bfcd20bb79c67bc346bab0889a212",
    ),
    "seeds": Entry(
        title="210 wheat kernels of 3 varieties, 7 measurements",
        source=f"Seeds by Charytanowicz and others; {UCI}/236/seeds and {OPENML}/1499.",
        licence="CC BY 4.0",
        sha256="a49d849c65acd8b534c830ecee006025f6afbc95d099aaff68a27cb4c9e14e27",
        download=_public.seeds,
        content="9c196e872b870c3d76c4ff01a8d377ad99469150c5f4fedbe44cd59daed1a221",
    ),
    "user_knowledge": Entry(
        title="403 students of 4 levels of knowledge, 5 measurements; 258 rows train, 145 test",
        source=(
            "User Knowledge Modeling by Kahraman, Sagiroglu and Colak (2013); "
            f"{UCI}/257/user+knowledge+modeling."
        ),
        licence="CC BY 4.0",
        sha256="0bdee4d7ecb2d52d6f31b28ef8f824ec100c1e130df01c711cba8b8ff71c40b1",
    ),
    "wdbc": Entry(
        title="569 breast tumours, malignant or benign, 30 measurements",
        source=(
            "Breast Cancer Wisconsin (Diagnostic) by Wolberg, Street and Mangasarian; "
            f"{UCI}/17/breast+cancer+wisconsin+diagnostic."
        ),
        licence="CC BY 4.0",
        sha256="99000de6e7d1155f5b9d2eec384d90fdceb4e25b52919ebd6bb62b68d38ec34d",
        bundled=_public.wdbc,
        content="9bb5b174723a4097a18592b5382bb9558ba24e7d005776928e5244cb8a320a7f",
    ),
    "wpbc": Entry(
        title="194 breast cancer patients, recurrent or not, 33 measurements; 198 in `X_all`, 4 incomplete",
        source=(
            "Breast Cancer Wisconsin (Prognostic) by Wolberg, Street and Mangasarian; "
            f"{UCI}/16/breast+cancer+wisconsin+prognostic."
        ),
        licence="CC BY 4.0",
        sha256="812f4f690d468bde9885f6c3b8303714b4b1e15e1ef0bdf10f190384da757e67",
    ),
    "urban_land_cover": Entry(
        title="675 pieces of an aerial image, 9 land covers, 147 features; 168 rows train, 507 test",
        source=f"Urban Land Cover by Johnson (2013); {UCI}/295/urban+land+cover.",
        licence="CC BY 4.0",
        sha256="72c0f6e98aa1b831ee037567effc5bc61e5bcce6b93364b4ddbf3eec8f960535",
    ),
    "lsvt": Entry(
        title="126 voice recordings of 14 people, acceptable or not, 310 features",
        source=(
            f"LSVT Voice Rehabilitation by Tsanas and others (2014); {UCI}/282/lsvt+voice+rehabilitation. "
            "Split it by `subject`, not by rows."
        ),
        licence="CC BY 4.0",
        sha256="926df931446e5faa7dbfeccc1a1748d8169889b2119ee998b192404de7ce8c6f",
    ),
    "breast_tissue": Entry(
        title="106 samples of 6 kinds of breast tissue, 9 electrical measurements",
        source=f"Breast Tissue by Jossinet and Marques de Sa; {UCI}/192/breast+tissue.",
        licence="CC BY 4.0",
        sha256="842414fe455c3e60d56cf7c13f0d05f997d1d5ecdb273d24234c474e5f8a9480",
    ),
    "leuk72_3k": Entry(
        title="72 samples in 3 classes, 39 standardised features",
        source=(
            "Probably gene expressions of leukaemia; a demonstration file of Wang's toolbox CVAP; "
            "https://www.mathworks.com/matlabcentral/fileexchange/14620."
        ),
        licence="BSD-style, as the toolbox",
        sha256="cc4ef7857e102165d4b75daae6bab128bf578665957a0667a9966889dae77221",
    ),
    "sonar": Entry(
        title="208 sonar echoes of rocks and mines, energies in 60 bands",
        source=(
            "Connectionist Bench (Sonar) by Gorman and Sejnowski; "
            f"{UCI}/151/connectionist+bench+sonar+mines+vs+rocks and {OPENML}/40."
        ),
        licence="CC BY 4.0",
        sha256="e564d6a28a51a0db4d31339c3b8abbdbda9d232e726d3a8f0730f6c3a7cf953e",
        download=_public.sonar,
        content="c018f5183db2eff0b3dee7c6d6e8d20f8d4c9f58cce3df4dd09a8e08068ea9fa",
    ),
    "kddcup99_10pct": Entry(
        title="494 021 network connections of 23 kinds, 38 numeric features (`X`) and 3 categories (`X_cat`)",
        source=f"KDD Cup 1999, the 10 % file; {UCI}/130/kdd+cup+1999+data.",
        licence="CC BY 4.0",
        sha256="73182d66b416acd5474576d9462121d9a0b8c7a0314bd3ecca6da5b8d70c5cb2",
        download=_public.kddcup99_10pct,
        content="3c568d51c3b10aed85a9b85bd5ea2c619dc2d4ab212d44e4e09b899cfe3bd051",
    ),
    "thyroid_odds": Entry(
        title="3772 patients, 93 of them outliers (y = 1), 6 measurements",
        source=(
            "The ODDS form of UCI's thyroid disease data; "
            "https://odds.cs.stonybrook.edu/thyroid-disease-dataset/."
        ),
        licence="none stated",
        sha256="1d036fd0ac9b9f5e158af90b2b76218da50a3582232e259131fe5b6c43633925",
    ),
    "arrhythmia_odds": Entry(
        title="452 electrocardiograms, 66 of them outliers (y = 1), 274 features",
        source="The ODDS form of UCI's arrhythmia data; https://odds.cs.stonybrook.edu/arrhythmia-dataset/.",
        licence="none stated",
        sha256="e4cf67cc49ae29625221d3d17ef77a13975c04aa6df8a9ce288649092a0607be",
    ),
}
