"""cuDNN's flash attention: sequences, heads and queries are computed apart; grouped queries share a head of keys and
values.

Floor: rules.
"""

from __future__ import annotations

from hlosharding.ir import FusedAttention, Instruction, fused_attention
from hlosharding.rules.signature import Nothing, Reduce, Signature, SignatureMaker

KINDS = ("__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward")
"""Those without bias, which others may share, and without dropout, whose numbers go by place."""


def attention(inst: Instruction) -> Signature:
    """Factors `b`, `h` (heads of keys), `g` (queries that share one) and `t` (positions of queries, of a causal mask as
    pairs `t z`, of which each part has as many of the first positions as of the last); keys and head_dim are whole, and
    all is where the call does not say what it computes.
    """
    make, found = SignatureMaker(inst), fused_attention(inst)
    if found is None:
        return make.build()
    queries, keys = (o.shape for o in inst.operands[:2])
    heads, shared = queries.dims[found.heads], keys.dims[found.heads]
    operands = [(n, _heads_dim(o.shape.rank, found.heads), n in (1, 2)) for n, o in enumerate(inst.operands)]
    of_keys = (1, 2) if found.is_backward else ()
    results = [(n, 1 if s.rank > 1 else None, n in of_keys) for n, s in enumerate(inst.shape.leaves)]
    batched = [(n, 0) for n, s in enumerate(inst.shape.leaves) if s.rank > 1]
    make.factor("b", queries.dims[0], [(n, 0) for n, _, _ in operands], batched)
    split = [[(n, dim) for n, dim, _ in side if dim is not None] for side in (operands, results)]
    make.factor("h", shared, *split)
    own = [[(n, dim) for n, dim, is_key in side if dim is not None and not is_key] for side in (operands, results)]
    if heads != shared:
        make.factor("g", heads // shared, *own)
    if found.is_plain:
        positions = [(n, found.length if inst.operands[n].shape.rank == 4 else 2) for n, _ in own[0]]
        for name, size in _positions(found, queries.dims[found.length], keys.dims[found.length]).items():
            owes = Reduce("add") if found.is_backward else Nothing()  # gradients of keys are sums over the queries
            make.factor(name, size, positions, [(n, 2) for n, _ in own[1]], owes=owes)
    return make.build()


def _positions(found: FusedAttention, queries: int, keys: int) -> dict[str, int]:
    """The factors of a dim of so many queries, and their sizes; none where they may not be split."""
    if not found.is_causal:
        return {"t": queries}
    return {"t": queries // 2, "z": 2} if queries == keys and queries % 2 == 0 else {}


def _heads_dim(rank: int, heads: int) -> int | None:
    """Of queries, keys and the like, of sums of the softmax, which have no head_dim; not of lengths of sequences."""
    return {4: heads, 3: 1}.get(rank)
