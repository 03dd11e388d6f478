"""A module as flat lists over instruction ids: what the pass reads and rewrites, at the speed of list look-ups.

Floor: propagation.  Knows XLA's orders (of instructions, users and post order), which decide ties; nothing of what a
sharding means.  The few rewrites of the pass (a `Sharding` call becomes a copy, a call is bypassed, a while root gets a
copy behind it) happen here, and `apply` carries them over to a clone of the module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from hlosharding.ir import CONTROL_FLOW, Instruction, Module, Shape, rewrite
from hlosharding.sharding import HloSharding

Ids = tuple[int, ...]
_CUSTOM_CALL, _COPY = "custom-call", "copy"
"""A `Sharding` call, and what the pass makes of it (and puts behind a root)."""


class PropagationGraph:
    """Lists indexed by instruction id; `order[c]` holds the ids of computation `c`, in the module's order."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._read_instructions()
        self._read_computations()
        self._read_shardings()
        self._post_orders: dict[int, list[int]] = {}
        self._positions: dict[int, dict[int, list[int]]] = {}
        self.copies: dict[int, None] = {}
        """In the order in which they were made."""
        self.bypassed: list[int] = []
        self.root_copy: int | None = None
        self.left_out: set[int] = set()
        """Computations of execution threads that were not asked for: they count as empty."""
        self.foreign_async: set[int] = set()
        """Async ops whose work is done on such a thread."""

    def _read_instructions(self) -> None:
        self.instructions: list[Instruction] = list(self.module.instructions)
        self.opcode = [i.opcode for i in self.instructions]
        self._of_opcode: defaultdict[str, list[int]] = defaultdict(list)
        for i, opcode in enumerate(self.opcode):
            self._of_opcode[opcode].append(i)
        # Most instructions have two operands and one user: no inner loop for those.
        self.operands: list[Ids] = [
            (o[0].id, o[1].id) if len(o := i.operands) == 2 else tuple([x.id for x in o]) for i in self.instructions
        ]
        self.users: list[Ids] = [
            (u[0].id,) if len(u := i.users) == 1 else tuple([x.id for x in u]) for i in self.instructions
        ]
        self._controlled = {i.id for i in self.instructions if i.control_predecessors}

    def _read_computations(self) -> None:
        number = {c: n for n, c in enumerate(self.module.computations)}
        self.computations = list(number)
        self.entry = number[self.module.entry]
        self.roots = [c.root.id for c in number]
        self.order = [[i.id for i in c.instructions] for c in number]
        self.computation = [0] * len(self.instructions)
        for n, ids in enumerate(self.order):
            for i in ids:
                self.computation[i] = n
        self.called: list[Ids] = [()] * len(self.instructions)
        self.calling = [i.id for i in self.instructions if i.called]
        """The few instructions that call computations."""
        for i in self.calling:
            self.called[i] = tuple([number[c] for c in self.instructions[i].called])
        self.parameters = self._parameters()

    def _read_shardings(self) -> None:
        self.sharding: list[HloSharding | None] = [None] * len(self.instructions)
        for i, sharding in self.module.shardings.items():
            shape = self.instructions[i].shape
            self.sharding[i] = _normal(shape, sharding) if shape.is_tuple else sharding
        self.given = list(self.sharding)
        """What the user wrote."""

    def of_opcode(self, opcode: str) -> list[int]:
        """The instructions that had that opcode when the module was read."""
        return self._of_opcode.get(opcode, [])

    def _parameters(self) -> list[list[int]]:
        """Per computation its parameters, by number."""
        found: list[list[int]] = [[] for _ in self.order]
        for i in self.of_opcode("parameter"):
            found[self.computation[i]].append(i)
        for ids in found:
            ids.sort(key=lambda i: self.instructions[i].parameter_number)
        return found

    @property
    def entry_root(self) -> int:
        return self.roots[self.entry]

    # ---- what HLO programs are built from

    def is_parameter(self, i: int) -> bool:
        return self.opcode[i] == "parameter"

    def is_tuple(self, i: int) -> bool:
        """Does it put its operands together?  (Other ops may give tuples, too.)"""
        return self.opcode[i] == "tuple"

    def is_element(self, i: int) -> bool:
        """Does it take one element out of a tuple?"""
        return self.opcode[i] == "get-tuple-element"

    def is_loop(self, i: int) -> bool:
        return self.opcode[i] == "while"

    def custom_calls(self) -> list[int]:
        """Those that the module had when it was read; `Sharding` calls among them have become copies."""
        return self.of_opcode(_CUSTOM_CALL)

    def target(self, i: int) -> str:
        """The target of a custom call; "" of anything else."""
        return self.instructions[i].custom_call_target if self.opcode[i] == _CUSTOM_CALL else ""

    def distinct_shardings(self) -> list[HloSharding]:
        """Every sharding in use, once: thousands of instructions share a few."""
        # By identity, since `==` ignores metadata and spelling, and both matter to some of those who ask.
        return list({id(s): s for s in self.sharding if s is not None}.values())

    def control_flow(self) -> list[int]:
        """Loops, branches and calls, computation by computation."""
        found = {i for opcode in CONTROL_FLOW for i in self.of_opcode(opcode)}
        return [i for ids in self.order for i in ids if i in found] if found else []

    def in_order(self, *targets: str) -> list[int]:
        """The custom calls of these targets, computation by computation."""
        found = {i for i in self.custom_calls() if self.target(i) in targets}
        return [i for ids in self.order for i in ids if i in found] if found else []

    def is_root(self, i: int) -> bool:
        return self.roots[self.computation[i]] == i

    def positions(self, operand: int, user: int) -> list[int]:
        """Where `user` has that operand.  Looked up once for all operands of a user: some have thousands."""
        found = self._positions.get(user)
        if found is None:
            found = self._positions[user] = {}
            for position, other in enumerate(self.operands[user]):
                found.setdefault(other, []).append(position)
        return found.get(operand, [])

    # ---- rewrites

    def become_copy(self, i: int) -> None:
        """Turn a custom call into a copy.  As a user it takes the call's place; XLA lists it last (`list_copies`)."""
        self.opcode[i] = _COPY
        self.copies[i] = None

    def list_copies(self) -> None:
        """Move the copies to the end of their computations."""
        for computation in {self.computation[i] for i in self.copies}:
            self.order[computation] = [i for i in self.order[computation] if i not in self.copies]
        for i in self.copies:
            self.order[self.computation[i]].append(i)
            # Post order starts from instructions without users, in the order of the list: others may stand anywhere.
            if not self.users[i]:
                self._post_orders.pop(self.computation[i], None)

    def bypass(self, i: int) -> None:
        """Let the users of `i` read its operand 0 instead, and drop it."""
        operand = self.operands[i][0]
        if self.sharding[operand] is None:
            self.sharding[operand] = self.sharding[i]
        self._positions.clear()
        for user in self.users[i]:
            self.operands[user] = tuple(operand if o == i else o for o in self.operands[user])
            if user not in self.users[operand]:
                self.users[operand] += (user,)
        self.users[operand] = _swap_remove(self.users[operand], i)
        computation = self.computation[i]
        self._post_orders.pop(computation, None)
        self.order[computation].remove(i)
        if self.roots[computation] == i:
            self.roots[computation] = operand
        self.users[i] = ()
        self.bypassed.append(i)

    def copy_behind_root(self) -> int:
        """A new entry root: a copy of the old one.  Its id is the next free one."""
        root, new = self.entry_root, len(self.instructions)
        self.instructions.append(self.instructions[root])
        self.opcode.append(_COPY)
        self.operands.append((root,))
        self.users.append(())
        self.users[root] += (new,)
        self.computation.append(self.entry)
        self.called.append(())
        self.sharding.append(None)
        self.given.append(None)
        self.order[self.entry].append(new)
        self.roots[self.entry] = new
        self.root_copy = new
        self._post_orders.pop(self.entry, None)
        return new

    def apply(self, module: Module) -> None:
        """Make the same rewrites on `module`, a clone of the one read, and give it the shardings found."""
        by_id = list(module.instructions)
        for i in self.copies:
            rewrite.change_opcode(by_id[i], _COPY)
        # The copy behind the root has the next free id, which `module` does not have yet: it is appended below.
        module.shardings = {n: s for n, s in enumerate(self.sharding) if s is not None and n < len(by_id)}
        for i in self.bypassed:
            operand = by_id[i].operands[0]
            was_root = by_id[i].is_root
            rewrite.replace_uses(by_id[i], operand)
            if was_root:
                by_id[i].computation.set_root(operand)
            rewrite.remove(by_id[i])
            module.shardings.pop(i, None)
        if self.root_copy is not None:
            _append_root_copy(module, self.sharding[self.root_copy])
        if self.bypassed:
            module.renumber()

    # ---- orders

    def post_order(self, computation: int) -> list[int]:
        """XLA's MakeInstructionPostOrder: depth first from every instruction without users, in list order."""
        found = self._post_orders.get(computation)
        if found is None:
            found = self._post_orders[computation] = self._find_post_order(self.order[computation])
        return found

    def forget_post_orders(self) -> None:
        """They will not be asked for again."""
        self._post_orders.clear()

    def _find_post_order(self, ids: list[int]) -> list[int]:
        order: list[int] = []
        placed, before = bytearray(len(self.opcode)), self._before()
        for start in ids:
            if self.users[start]:
                continue
            current, waiting = start, iter(before[start])
            # No recursion: a chain of operands may be longer than Python's stack is deep.
            above: list[tuple[int, Iterator[int]]] = []
            while True:
                for operand in waiting:
                    if not placed[operand]:
                        above.append((current, waiting))
                        current, waiting = operand, iter(before[operand])
                        break
                else:
                    placed[current] = 1
                    order.append(current)
                    if not above:
                        break
                    current, waiting = above.pop()
        return order

    def _before(self) -> list[Ids]:
        """Whom post order visits first: control predecessors, the last one first, then operands."""
        if not self._controlled:
            return self.operands
        found = list(self.operands)
        for i in self._controlled:
            # XLA's ComputeInstructionPostOrder puts them onto its stack behind the operands: the last one comes off
            # first.
            found[i] = (*(p.id for p in reversed(self.instructions[i].control_predecessors)), *found[i])
        return found


def _normal(shape: Shape, sharding: HloSharding) -> HloSharding:
    """One leaf given for a whole tuple stands for every leaf (XLA's NormalizeTupleSharding)."""
    return sharding if sharding.is_tuple() else sharding.normalize_tuple(len(shape.leaves))


def _swap_remove(users: Ids, user: int) -> Ids:
    """XLA's Users::RemoveUser: the last user takes the place of the removed one."""
    *others, last = users
    return tuple(last if u == user else u for u in others)


def _append_root_copy(module: Module, sharding: HloSharding | None) -> None:
    root = module.entry.root
    position, name = len(module.entry.instructions), rewrite.fresh_name(module, _COPY)
    copy = rewrite.insert(module.entry, position, _COPY, root.shape, (root,), name=name, like=root)
    module.entry.set_root(copy)
    module.renumber()
    if sharding is not None:
        module.shardings[copy.id] = sharding
