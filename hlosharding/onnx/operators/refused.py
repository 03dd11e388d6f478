"""Operators that have no form in HLO, each with the reason.

Floor: onnx.
"""

from __future__ import annotations

from typing import Any

from hlosharding.errors import LoadError
from hlosharding.onnx.operators.table import operator

_STRINGS = "works on strings, which HLO does not have"
_REMEDY = "compute it before the program, and give its result as an input"


@operator("StringConcat", 20)
def _string_concat(x: Any, y: Any) -> Any:
    raise LoadError(_STRINGS, remedy=_REMEDY)


@operator("StringSplit", 20)
def _string_split(x: Any, *, delimiter: str = "", maxsplit: int = 0) -> Any:
    raise LoadError(_STRINGS, remedy=_REMEDY)


@operator("StringNormalizer", 10)
def _string_normalizer(
    x: Any, *, case_change_action: str = "", is_case_sensitive: int = 0, locale: str = "", stopwords: Any = None
) -> Any:
    raise LoadError(_STRINGS, remedy=_REMEDY)


@operator("RegexFullMatch", 20)
def _regex_full_match(x: Any, *, pattern: str = "") -> Any:
    raise LoadError(_STRINGS, remedy=_REMEDY)


@operator("TfIdfVectorizer", 9)
def _tf_idf_vectorizer(
    x: Any, *, max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str, ngram_counts: Any,
    ngram_indexes: Any, pool_int64s: Any = None, pool_strings: Any = None, weights: Any = None,
) -> Any:  # fmt: skip
    raise LoadError("counts runs of words, for which HLO has no op", remedy=_REMEDY)


@operator("ImageDecoder", 20)
def _image_decoder(encoded_stream: Any, *, pixel_format: str = "RGB") -> Any:
    raise LoadError("decodes an image file: the size of the image is only known when the program runs", remedy=_REMEDY)
