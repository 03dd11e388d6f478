"""The fix point: sweeps over all computations, forward then backward, until nothing changes, at one level after another.

Floor: propagation.  Knows order, memory and change; not what any op does.

Instructions are numbered by their place in XLA's post order, so that "the next one that is not done" is a search for a zero
byte.  Shardings are small integers, and every inference is a dictionary look-up on them after its first time; the dictionaries
belong to the ops, which equal layers share.  Two byte strings per direction do the bookkeeping: `done` is XLA's set of what
needs no second try within a level; `stale` says whose inputs changed since it was last tried, so that levels 2 and 3 only
revisit what could end differently.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from hlosharding.propagation import data_flow, partial, policy
from hlosharding.propagation.annotations import Annotations
from hlosharding.propagation.graph import Graph
from hlosharding.propagation.handlers import other_operands
from hlosharding.propagation.improving import improve
from hlosharding.propagation.inference import infer_backward, infer_forward, offer_to_operand
from hlosharding.propagation.op import Edge, Op, partitioned
from hlosharding.propagation.ops import OpTable
from hlosharding.propagation.provenance import Direction, Trail
from hlosharding.sharding import HloSharding

_INVERT = bytes([1]) + bytes(255)
_SIBLINGS_MATTER = frozenset({"dot", "convolution", "reduce", "scatter"})
_LOOKS_AHEAD = frozenset({"dot", "convolution"})
_MISSING: Any = object()
_TIE: Any = object()
_DYNAMIC = 10


class FixPoint:
    """The state of one run.  `run_level` may be called for levels 0, 1, 2, 3 and once more for 3."""

    def __init__(
        self,
        graph: Graph,
        notes: Annotations,
        callers: dict[int, int],
        provided: set[int],
        *,
        spmd: bool,
        to_outputs: bool,
        to_parameters: bool,
        trail: Trail,
    ) -> None:
        self.graph, self.notes, self.callers, self.provided, self.spmd = graph, notes, callers, provided, spmd
        self.to_parameters, self.trail = to_parameters, trail
        self.level = 0
        self._shardings: list[HloSharding | None] = [None]
        self._numbers: dict[int, int] = {}
        self._place_instructions()
        self._find_ops(OpTable(graph, callers, spmd=spmd, to_outputs=to_outputs), to_parameters)
        self._find_users()
        self._find_specials()
        size = len(self.ids)
        self.current = [self._number(graph.sharding[i]) for i in self.ids]
        self.stale_forward, self.stale_backward = bytearray(b"\1" * size), bytearray(b"\1" * size)
        self.done_forward, self.done_backward = bytearray(size), bytearray(size)
        self.done_group: set[int] = set()

    # ---- set-up

    def _place_instructions(self) -> None:
        self.ids: list[int] = []
        self.spans: list[tuple[int, int]] = []
        for computation in range(len(self.graph.order)):
            start = len(self.ids)
            self.ids += self.graph.post_order(computation)
            self.spans.append((start, len(self.ids)))
        self.place = [-1] * len(self.graph.opcode)
        for place, i in enumerate(self.ids):
            self.place[i] = place

    def _find_ops(self, table: OpTable, to_parameters: bool) -> None:
        graph, place = self.graph, self.place
        self.ops: list[Op] = [table.op(i) for i in self.ids]
        self.operands: list[list[int]] = [[place[o] for o in graph.operands[i]] for i in self.ids]
        self.has_manual = any(s is not None and _has_manual(s) for s in graph.sharding)
        # XLA finds that all leaves of an empty tuple are manual, there being none.
        self.has_manual |= any(op.shape.is_tuple and not op.shape.leaves for op in self.ops)
        self.through: list[int] = []
        self.forward_level: list[int] = []
        self.backward_level: list[int] = []
        self.forward_key: list[Callable[[list[int]], Any]] = []
        for p, i in enumerate(self.ids):
            op = self.ops[p]
            inputs = self.operands[p]
            if op.opcode == "parameter":
                passed = data_flow.caller_operand(graph, i, self.callers)
                inputs = [] if passed is None else [place[passed]]
            self.forward_key.append(itemgetter(p, *inputs))
            fixed = i in self.provided
            self.through.append(policy.through_level(op.opcode, op.elementwise, op.target))
            forward = self.through[p]
            if op.opcode == "broadcast" and not self.has_manual:
                forward = policy.BROADCAST_FORWARD_LEVEL
            self.forward_level.append(policy.NEVER if fixed or not self._can_take_forward(op, inputs) else forward)
            self.backward_level.append(self._backward_level(i, op, to_parameters) if not fixed else policy.NEVER)

    def _can_take_forward(self, op: Op, inputs: list[int]) -> bool:
        return bool(inputs) and (op.receives or op.takes_replicated or self.has_manual)

    def _backward_level(self, i: int, op: Op, to_parameters: bool) -> int:
        graph = self.graph
        self_connected = graph.computation[i] in self.callers
        if graph.is_root(i) and not self_connected:
            receives = False
        elif op.opcode == "parameter":
            receives = to_parameters or self_connected
        else:
            receives = policy.may_receive(op.instruction, op.opcode, op.elementwise, op.target, self.spmd)
        self_level = policy.BROADCAST_BACKWARD_LEVEL if op.opcode == "broadcast" else 0
        return self_level if receives or self.has_manual else policy.NEVER

    def _find_users(self) -> None:
        """The uses of every value: (user, its level, memo tables, key, edge)."""
        graph, place = self.graph, self.place
        self.users: list[list[int]] = [[place[u] for u in graph.users[i]] for i in self.ids]
        self.edges: list[list[tuple[int, int, Any, Any, Edge, tuple[int, ...]]]] = []
        for p, users in enumerate(self.users):
            uses = []
            for user in users:
                operands = self.operands[user]
                positions = tuple(n for n, o in enumerate(operands) if o == p) if len(operands) > 1 else (0,)
                edge = self.ops[user].edge(positions)
                others = tuple(operands[n] for n in other_operands(self.ops[user], positions))
                uses.append((user, self.through[user], edge.memo, itemgetter(p, user, *others), edge, others))
            self.edges.append(uses)
        self.clears_parameters = [
            [place[q] for u in graph.users[i] for c in graph.called[u] for q in graph.parameters[c]] for i in self.ids
        ]

    def _find_specials(self) -> None:
        """Instructions that the plain sweep does not do justice to, by place."""
        graph, place = self.graph, self.place
        self.open_dims = {place[i]: dims for i, dims in self.notes.unspecified.items() if place[i] >= 0}
        self.group_of = {place[i]: number for i, number in self.notes.group_of.items()}
        self.connected: dict[int, list[int]] = {}
        for p, i in enumerate(self.ids):
            roots = self._family_heads(i)
            if roots:
                self.connected[p] = roots
        self.always_forward = [
            p for p in range(len(self.ids)) if self.ops[p].opcode in _LOOKS_AHEAD or p in self.open_dims
        ]
        self.conversions = {p for p in range(len(self.ids)) if self.ops[p].target in policy.CONVERSIONS}
        self.slow_backward = {
            p for p, users in enumerate(self.users)
            if self.has_manual
            or p in self.open_dims
            or p in self.conversions
            or self.ops[p].target == policy.SHARD_BARRIER_TO
            or any(self.ops[u].opcode == "rng-bit-generator" for u in users)
        }  # fmt: skip
        for p in self.open_dims:
            self.forward_level[p] = self.backward_level[p] = _DYNAMIC
        for p in self.conversions:
            if self.ids[p] in self.provided:
                self.backward_level[p] = _DYNAMIC
        broadcast = [op.opcode == "broadcast" for op in self.ops]
        self.new_forward_at_3 = [p for p, yes in enumerate(broadcast) if yes]
        self.new_backward_at_2 = [p for p, yes in enumerate(broadcast) if yes]
        self.new_backward_at_2 += [p for p, us in enumerate(self.users) if any(broadcast[u] for u in us)]

    def _family_heads(self, i: int) -> list[int]:
        """The ops whose related instructions must follow a change of `i` (XLA's MaybeComputationPropagation)."""
        graph = self.graph
        heads = [i] if graph.opcode[i] in ("while", "conditional", "call") else []
        is_parameter = graph.opcode[i] == "parameter"
        caller = self.callers.get(graph.computation[i])
        if caller is not None and (is_parameter or graph.is_root(i)):
            heads.append(caller)
            if is_parameter and graph.opcode[caller] in ("conditional", "call"):
                heads.append(i)
        return heads

    # ---- shardings as numbers

    def _number(self, sharding: HloSharding | None) -> int:
        if sharding is None:
            return 0
        number = self._numbers.get(sharding.uid)
        if number is None:
            number = self._numbers[sharding.uid] = len(self._shardings)
            self._shardings.append(sharding)
        return number

    def sharding_at(self, place: int) -> HloSharding | None:
        """The present sharding of the instruction at `place`."""
        return self._shardings[self.current[place]]

    def set_at(self, place: int, sharding: HloSharding | None) -> None:
        """Overwrite the sharding of the instruction at `place`."""
        self.current[place] = self._number(sharding)

    def store(self) -> None:
        """Write the shardings back to the graph."""
        for place, i in enumerate(self.ids):
            self.graph.sharding[i] = self.sharding_at(place)

    def load(self, ids: list[int]) -> None:
        """Read shardings that were changed in the graph; whatever sees them is tried again."""
        for i in ids:
            self.set_at(self.place[i], self.graph.sharding[i])
            self._clear(self.place[i])

    # ---- levels and sweeps

    def run_level(self, level: int) -> bool:
        """Sweep until a whole round changes nothing; was anything improved?"""
        self.level = level
        self._start_level(level)
        changed, again = False, True
        while again:
            again = False
            for start, end in self.spans:
                improved, refined = self._sweep(start, end)
                changed |= improved
                again |= improved or refined
        return changed

    def _start_level(self, level: int) -> None:
        size = len(self.ids)
        if level <= 1:
            # Level 0 knows no merging: nothing that was tried there counts.
            self.stale_forward[:] = self.stale_backward[:] = b"\1" * size
        for p in self.always_forward:
            self.stale_forward[p] = 1
        for p in self.slow_backward:
            self.stale_backward[p] = 1
        if level == policy.BROADCAST_BACKWARD_LEVEL:
            for p in self.new_backward_at_2:
                self.stale_backward[p] = 1
        if level == policy.BROADCAST_FORWARD_LEVEL:
            for p in self.new_forward_at_3:
                self.stale_forward[p] = 1
                self.ops[p].memo[1].clear()
        self.done_forward[:] = self.stale_forward.translate(_INVERT)
        self.done_backward[:] = self.stale_backward.translate(_INVERT)
        self.done_group.clear()

    def _sweep(self, start: int, end: int) -> tuple[bool, bool]:
        improved = refined = False
        if self.group_of:
            more, finer = self._group_sweep(start, end)
            improved, refined = improved | more, refined | finer
        for sweep in (self._forward_sweep, self._backward_sweep):
            more, finer = sweep(start, end)
            improved, refined = improved | more, refined | finer
        return improved, refined

    def _forward_sweep(self, start: int, end: int) -> tuple[bool, bool]:
        done, level, current = self.done_forward, self.level, self.current
        levels, keys, ops, stale = self.forward_level, self.forward_key, self.ops, self.stale_forward
        which = 1 if level else 0
        improved = refined = False
        p = done.find(0, start, end)
        while p >= 0:
            done[p] = 1
            if levels[p] <= level:
                stale[p] = 0
                key = keys[p](current)
                hit = ops[p].memo[which].get(key, _MISSING)
                if hit is _MISSING or hit is _TIE:
                    hit = self._infer_forward(p, key, hit is _TIE)
                if hit is not None:
                    improved = True
                    self._change(p, hit[0], "operands", [self._input(p, n) for n in hit[1]])
            elif levels[p] == _DYNAMIC:
                refined |= self._refine_forward(p)
            p = done.find(0, p + 1, end)
        return improved, refined

    def _input(self, p: int, position: int) -> int:
        """The place of an operand, or of what the caller passes for a parameter."""
        if self.ops[p].opcode == "parameter":
            passed = data_flow.caller_operand(self.graph, self.ids[p], self.callers)
            return p if passed is None else self.place[passed]
        return self.operands[p][position]

    def _infer_forward(self, p: int, key: Any, known_tie: bool) -> Any:
        op, which = self.ops[p], 1 if self.level else 0
        memo = op.memo[which]
        asked: list[HloSharding | None] = []

        def look_ahead() -> HloSharding | None:
            asked.append(self._look_ahead(p))
            return asked[0]

        if known_tie:
            tie = (key, self._number(self._look_ahead(p)))
            if tie in memo:
                return memo[tie]
        numbers = key[1:] if type(key) is tuple else ()
        shardings = [self._shardings[n] for n in numbers]
        outcome = infer_forward(op, self.sharding_at(p), shardings, self.level, look_ahead)
        hit = None if outcome is None else (self._number(outcome[0]), outcome[1])
        if asked:
            memo[key] = _TIE
            memo[key, self._number(asked[0])] = hit
        else:
            memo[key] = hit
        return hit

    def _backward_sweep(self, start: int, end: int) -> tuple[bool, bool]:
        done, level, current, edges = self.done_backward, self.level, self.current, self.edges
        levels, slow, stale = self.backward_level, self.slow_backward, self.stale_backward
        which = 1 if level else 0
        improved = refined = False
        p = done.rfind(0, start, end)
        while p >= 0:
            if p in self.conversions:
                # A conversion is refined together with the annotation before it.
                done[self.operands[p][0]] = 0
            done[p] = 1
            if levels[p] <= level:
                stale[p] = 0
                if p in slow:
                    improved |= self._slow_backward(p)
                else:
                    sources = None
                    before = current[p]
                    for user, through, memo, get, edge, _ in edges[p]:
                        if current[user] and through <= level:
                            key = get(current)
                            hit = memo[which].get(key, _MISSING)
                            if hit is _MISSING:
                                hit = self._infer_backward(p, key, memo[which], edge)
                            if hit is not None:
                                current[p] = hit
                                sources = [user] if sources is None else [*sources, user]
                    if sources is not None:
                        improved = True
                        self._change(p, current[p], "users", sources, before)
            elif levels[p] == _DYNAMIC:
                if p in self.open_dims:
                    refined |= self._refine_backward(p)
                else:
                    done[p] = 0
            p = done.rfind(0, start, p)
        return improved, refined

    def _infer_backward(self, p: int, key: Any, memo: dict[Any, Any], edge: Edge) -> int | None:
        own, user, *others = (self._shardings[n] for n in key)
        assert user is not None
        found = infer_backward(edge, own, user, others, self.level)
        memo[key] = hit = None if found is None else self._number(found)
        return hit

    # ---- changes

    def _change(
        self, p: int, number: int, direction: Direction, sources: list[int], before: int | None = None
    ) -> None:
        old = self.current[p] if before is None else before
        self.current[p] = number
        self.trail.note(self.ids[p], self.level, direction, [self.ids[s] for s in sources], self._shardings[old], self._shardings[number])
        family: dict[int, None] = {}
        if p in self.connected:
            self._follow(p, family)
        self._clear(p)
        for other in family:
            self._clear(other)

    def _follow(self, p: int, changed: dict[int, None]) -> None:
        """Related instructions across computations are overwritten, unless they are provided."""
        for head in self.connected.get(p, ()):
            members = data_flow.related(self.graph, head, self.callers)
            if self.ids[p] not in members:
                continue
            for member in members:
                q = self.place[member]
                if member in self.provided or (self.current[q] and self.sharding_at(q) == self.sharding_at(p)):
                    continue
                self.trail.note(member, self.level, "computation", [self.ids[p]], self.sharding_at(q), self.sharding_at(p))
                self.current[q] = self.current[p]
                changed[q] = None
                self._follow(q, changed)

    def _clear(self, p: int, for_users: int | None = None) -> None:
        """Let everything that looks at `p` be tried again; `for_users` stands in for `p` towards the users."""
        q = p if for_users is None else for_users
        self.stale_forward[p] = self.stale_backward[p] = 1
        for operand in self.operands[p]:
            self.done_backward[operand] = 0
            self.stale_backward[operand] = 1
        for user in self.users[q]:
            self.done_forward[user] = 0
            self.stale_forward[user] = 1
            if self.ops[user].opcode in _SIBLINGS_MATTER:
                for sibling in self.operands[user]:
                    self.stale_backward[sibling] = 1
        for parameter in self.clears_parameters[q]:
            self.done_forward[parameter] = 0
            self.stale_forward[parameter] = 1
        if p in self.group_of:
            self.done_group.difference_update(m for m in self._members(p) if m != p)

    # ---- the special cases

    def _slow_backward(self, p: int) -> bool:
        """Backward with what is rare: manual users, barriers, rng-bit-generator (XLA's InferShardingFromUsers)."""
        own = self.sharding_at(p)
        if own is not None and own.is_manual():
            return False
        if self.has_manual and (own is None or own.is_tile_maximal()) and self._take_manual(p):
            return True
        if not self._receives_backward(p):
            return False
        before, sources = self.current[p], []
        for user, _, _, _, edge, others in self.edges[p]:
            if self.ops[user].opcode == "rng-bit-generator":
                self._change(p, self._number(HloSharding.replicate()), "users", [user], before)
                return True
            offered = self._offer(p, user, edge, others)
            if offered is not None and self.ops[p].target == policy.SHARD_BARRIER_TO:
                offered = HloSharding.replicate()
            if offered is None:
                continue
            combine = self.spmd and self.level > 0
            found = improve(self.sharding_at(p), offered, self.ops[p].shape, combine=combine)
            if found is not None:
                self.set_at(p, found)
                sources.append(user)
        if sources:
            self._change(p, self.current[p], "users", sources, before)
        return bool(sources)

    def _receives_backward(self, p: int) -> bool:
        graph, i, op = self.graph, self.ids[p], self.ops[p]
        connected = graph.computation[i] in self.callers
        if graph.is_root(i) and not connected:
            return False
        if op.opcode == "parameter":
            return self.to_parameters or connected
        return policy.may_receive(op.instruction, op.opcode, op.elementwise, op.target, self.spmd)

    def _offer(self, p: int, user: int, edge: Edge, others: tuple[int, ...]) -> HloSharding | None:
        sharding = self.sharding_at(user)
        if sharding is None or self.through[user] > self.level:
            return None
        return offer_to_operand(edge, self.sharding_at(p), sharding, [self.sharding_at(o) for o in others], self.level)

    def _take_manual(self, p: int) -> bool:
        for user, _, _, _, edge, others in self.edges[p]:
            sharding = self.sharding_at(user)
            if sharding is None or self.ops[user].target == policy.FULL_TO_SHARD:
                continue
            if self.ops[p].shape.is_array and sharding.is_manual():
                found: HloSharding | None = HloSharding.manual(sharding.leaves[0].metadata)
            else:
                found = self._offer(p, user, edge, others)
            if found is not None and found.is_manual():
                self._change(p, self._number(found), "users", [user])
                return True
        return False

    def _members(self, p: int) -> list[int]:
        return [self.place[m] for m in self.notes.members(self.ids[p]) if self.place[m] >= 0]

    def _group_sweep(self, start: int, end: int) -> tuple[bool, bool]:
        improved = refined = False
        for p in sorted(self.group_of):
            if not start <= p < end or p in self.done_group:
                continue
            if self.ids[p] in self.provided:
                refined |= self._refine_from_group(p)
                continue
            self.done_group.add(p)
            improved |= self._take_from_group(p)
        return improved, refined

    def _take_from_group(self, p: int) -> bool:
        """XLA's InferShardingFromShardGroup."""
        own, op = self.sharding_at(p), self.ops[p]
        if self.through[p] > self.level or (own is not None and own.is_manual()) or op.target == policy.SHARD_BARRIER_TO:
            return False
        members = [m for m in self._members(p) if m != p]
        if own is None or own.is_tile_maximal():
            for m in members:
                sharding = self.sharding_at(m)
                if sharding is not None and sharding.is_manual():
                    self._change(p, self.current[m], "group", [m])
                    return True
        before, sources = self.current[p], []
        for m in members:
            sharding = self.sharding_at(m)
            if sharding is None or self.ops[m].target == policy.SHARD_BARRIER_FROM:
                continue
            combine = self.spmd and self.level > 0
            found = improve(self.sharding_at(p), sharding, op.shape, combine=combine)
            if found is not None:
                self.set_at(p, found)
                sources.append(m)
        if sources:
            self._change(p, self.current[p], "group", sources, before)
        return bool(sources)

    def _refines(self) -> bool:
        return self.spmd and self.level > 0

    def _refine_from_group(self, p: int) -> bool:
        if not self._refines() or p not in self.open_dims or self.ops[p].target == policy.SHARD_BARRIER_TO:
            return False
        found = False
        for m in self._members(p):
            if m != p and self.ops[m].target != policy.SHARD_BARRIER_FROM:
                found |= self._refine(p, None, self.sharding_at(m), "group", m)
        if found:
            self._clear(p)
            self.done_group.add(p)
        return found

    def _refine_forward(self, p: int) -> bool:
        """Open dims take tiles from the operand (InferUnspecifiedDimsFromOperand); tried anew until it works."""
        operand = self.operands[p][0]
        conversion, fits = self._conversion(p)
        if not self._refines() or not fits:
            self.done_forward[p] = 0
            return False
        if self._refine(p, conversion, self.sharding_at(operand), "operands", operand):
            self._clear(p, conversion)
            self.done_forward[p] = 1
            return True
        self.done_forward[p] = 0
        return False

    def _refine_backward(self, p: int) -> bool:
        """Open dims take tiles from the users, or from those of the conversion behind (InferUnspecifiedDimsFromUsers)."""
        conversion, fits = self._conversion(p)
        if not self._refines() or not fits:
            self.done_backward[p] = 0
            return False
        at = p if conversion is None else conversion
        found = False
        for user, _, _, _, edge, others in self.edges[at]:
            sharding = self.sharding_at(user)
            if sharding is None or not sharding.is_tiled():
                continue
            found |= self._refine(p, conversion, self._offer(at, user, edge, others), "users", user)
        self.done_backward[p] = int(found)
        if found:
            self._clear(p, conversion)
            self.done_backward[p] = 1
            if conversion is not None:
                self.done_backward[conversion] = 1
        return found

    def _conversion(self, p: int) -> tuple[int | None, bool]:
        """The manual conversion behind an annotation, if that is its only user; False if its open dims differ."""
        users = self.users[p]
        if len(users) != 1 or users[0] not in self.conversions:
            return None, True
        dims = partial.open_dims_of(self.graph.instructions[self.ids[users[0]]].opaque)
        return users[0], dims == self.open_dims[p]

    def _refine(
        self, p: int, conversion: int | None, source: HloSharding | None, direction: Direction, cause: int
    ) -> bool:
        own = self.sharding_at(p)
        if source is None or own is None or not partitioned(source):
            return False
        if conversion is None:
            refined = partial.refine(own, source, self.open_dims[p])
            if refined is None:
                return False
            self._set_refined(p, refined, direction, cause)
            return True
        other = self.sharding_at(conversion)
        if other is None:
            return False
        manual_first = self.ops[conversion].target == policy.SHARD_TO_FULL
        pair = partial.refine_pair(own, other, source, self.open_dims[p], manual_first, direction == "users")
        if pair is None:
            return False
        self._set_refined(p, pair[0], direction, cause)
        self._set_refined(conversion, pair[1], direction, cause)
        return True

    def _set_refined(self, p: int, sharding: HloSharding, direction: Direction, cause: int) -> None:
        self.trail.note(self.ids[p], self.level, direction, [self.ids[cause]], self.sharding_at(p), sharding)
        self.set_at(p, sharding)

    def _look_ahead(self, p: int) -> HloSharding | None:
        """What the users ahead would like: back along the chain of single users from the first sharded one."""
        chain = [p]
        while len(self.users[chain[-1]]) == 1:
            chain.append(self.users[chain[-1]][0])
            if self.current[chain[-1]]:
                break
        else:
            return None
        level, self.level = self.level, policy.NEVER
        found = None
        for n in range(len(chain) - 1, 0, -1):
            user, value = chain[n], chain[n - 1]
            _, _, _, _, edge, others = self.edges[value][0]
            found = self._offer(value, user, edge, others)
            if found is None or n == 1:
                break
            self.set_at(value, found)
        self.level = level
        for middle in chain[1:-1]:
            self.current[middle] = 0
        return found


def _has_manual(sharding: HloSharding) -> bool:
    return any(leaf.is_manual() for leaf in sharding.leaves)
