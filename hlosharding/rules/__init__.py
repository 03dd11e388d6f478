"""The truth of every op, declared once: which dims are the same extent, and what a split of it owes."""

from hlosharding.rules.affine_indices import AffineIndices, addressing, affine_indices, iota_signature
from hlosharding.rules.catalog import catalog, signature_of
from hlosharding.rules.custom_calls import (
    CallCost,
    EstimatedCost,
    batch_dims,
    function_signature,
    has_users_rule,
    is_whole_kernel,
    registered_name,
    users_calls,
)
from hlosharding.rules.elementwise import is_splat
from hlosharding.rules.interface import register_interface, rule_of_maps
from hlosharding.rules.local import has_local_attributes, local_attributes
from hlosharding.rules.notation import parse_rule, parse_shardy_rule
from hlosharding.rules.reductions import top_k
from hlosharding.rules.registration import count_changes, register_rule, unregister_rule
from hlosharding.rules.signature import (
    DataFlow,
    Debt,
    Dims,
    Factor,
    Halo,
    Nothing,
    Opaque,
    Reduce,
    Signature,
    SignatureMaker,
    Whole,
    check_signature,
)
from hlosharding.rules.windows import window_of

__all__ = [
    "AffineIndices",
    "CallCost",
    "DataFlow",
    "Debt",
    "Dims",
    "EstimatedCost",
    "Factor",
    "Halo",
    "Nothing",
    "Opaque",
    "Reduce",
    "Signature",
    "SignatureMaker",
    "Whole",
    "addressing",
    "affine_indices",
    "batch_dims",
    "catalog",
    "check_signature",
    "count_changes",
    "function_signature",
    "has_local_attributes",
    "has_users_rule",
    "iota_signature",
    "is_splat",
    "is_whole_kernel",
    "local_attributes",
    "parse_rule",
    "parse_shardy_rule",
    "register_interface",
    "register_rule",
    "registered_name",
    "rule_of_maps",
    "signature_of",
    "top_k",
    "unregister_rule",
    "users_calls",
    "window_of",
]
