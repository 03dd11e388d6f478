"""A module as flat lists over instruction ids: what the pass reads and rewrites, at the speed of list look-ups.

Floor: propagation.  Knows XLA's orders (of instructions, users and post order), which decide ties; nothing of what a
sharding means.  The few rewrites of the pass (a `Sharding` call becomes a copy, a call is bypassed, a while root gets a
copy behind it) happen here, and `apply` carries them over to a clone of the module.
"""

from __future__ import annotations

from hlosharding.ir import CONTROL_FLOW, Instruction, Module, Shape, rewrite
from hlosharding.sharding import HloSharding


class Graph:
    """Lists indexed by instruction id; `order[c]` holds the ids of computation `c`, in the module's order."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.instructions: list[Instruction] = list(module.instructions)
        number = {c: n for n, c in enumerate(module.computations)}
        self.computations = list(number)
        self.opcode = [i.opcode for i in self.instructions]
        self.operands = [[o.id for o in i.operands] for i in self.instructions]
        self.called: list[tuple[int, ...]] = [
            tuple(number[c] for c in i.called) if i.called else () for i in self.instructions
        ]
        self.order = [[i.id for i in c.instructions] for c in number]
        self.computation = [0] * len(self.instructions)
        for n, ids in enumerate(self.order):
            for i in ids:
                self.computation[i] = n
        self.custom_calls = [i for i, opcode in enumerate(self.opcode) if opcode == "custom-call"]
        self._controlled = {i.id for i in self.instructions if i.control_predecessors}
        self._post_orders: dict[int, list[int]] = {}
        self.roots = [c.root.id for c in number]
        self.entry = number[module.entry]
        self.users = [[u.id for u in i.users] for i in self.instructions]
        self.parameters = [self._parameters(ids) for ids in self.order]
        self.sharding: list[HloSharding | None] = [None] * len(self.instructions)
        for i, sharding in module.shardings.items():
            shape = self.instructions[i].shape
            self.sharding[i] = _normal(shape, sharding) if shape.is_tuple else sharding
        self.given = list(self.sharding)
        """What the user wrote."""
        self.copies: dict[int, None] = {}
        """In the order in which they were made."""
        self.bypassed: list[int] = []
        self.root_copy: int | None = None

    def _parameters(self, ids: list[int]) -> list[int]:
        found = [i for i in ids if self.opcode[i] == "parameter"]
        return sorted(found, key=lambda i: self.instructions[i].parameter_number)

    @property
    def entry_root(self) -> int:
        return self.roots[self.entry]

    def target(self, i: int) -> str:
        """The target of a custom call; "" of anything else."""
        return self.instructions[i].custom_call_target if self.opcode[i] == "custom-call" else ""

    def distinct_shardings(self) -> list[HloSharding]:
        """Every sharding in use, once: thousands of instructions share a few."""
        return [s for s in {id(s): s for s in self.sharding}.values() if s is not None]

    def control_flow(self) -> list[int]:
        """Loops, branches and calls, computation by computation."""
        if not any(opcode in CONTROL_FLOW for opcode in set(self.opcode)):
            return []
        return [i for ids in self.order for i in ids if self.opcode[i] in CONTROL_FLOW]

    def in_order(self, *targets: str) -> list[int]:
        """The custom calls of these targets, computation by computation."""
        found = {i for i in self.custom_calls if self.target(i) in targets}
        return [i for ids in self.order for i in ids if i in found] if found else []

    def is_root(self, i: int) -> bool:
        return self.roots[self.computation[i]] == i

    # ---- rewrites

    def become_copy(self, i: int) -> None:
        """Turn a custom call into a copy.  As a user it takes the call's place; XLA lists it last (`list_copies`)."""
        self.opcode[i] = "copy"
        self.copies[i] = None

    def list_copies(self) -> None:
        """Move the copies to the end of their computations."""
        for computation in {self.computation[i] for i in self.copies}:
            self.order[computation] = [i for i in self.order[computation] if i not in self.copies]
        for i in self.copies:
            self.order[self.computation[i]].append(i)
            if not self.users[i]:
                self._post_orders.pop(self.computation[i], None)

    def bypass(self, i: int) -> None:
        """Let the users of `i` read its operand 0 instead, and drop it."""
        operand = self.operands[i][0]
        if self.sharding[operand] is None:
            self.sharding[operand] = self.sharding[i]
        for user in self.users[i]:
            self.operands[user] = [operand if o == i else o for o in self.operands[user]]
            if user not in self.users[operand]:
                self.users[operand].append(user)
        _swap_remove(self.users[operand], i)
        computation = self.computation[i]
        self._post_orders.pop(computation, None)
        self.order[computation].remove(i)
        if self.roots[computation] == i:
            self.roots[computation] = operand
        self.users[i] = []
        self.bypassed.append(i)

    def copy_behind_root(self) -> int:
        """A new entry root: a copy of the old one.  Its id is the next free one."""
        root, new = self.entry_root, len(self.instructions)
        self.instructions.append(self.instructions[root])
        self.opcode.append("copy")
        self.operands.append([root])
        self.users.append([])
        self.users[root].append(new)
        self.computation.append(self.entry)
        self.called.append(())
        self.sharding.append(None)
        self.order[self.entry].append(new)
        self.roots[self.entry] = new
        self.root_copy = new
        self._post_orders.pop(self.entry, None)
        return new

    def apply(self, module: Module) -> None:
        """Make the same rewrites on `module`, a clone of the one read, and give it the shardings found."""
        by_id = list(module.instructions)
        for i in self.copies:
            rewrite.change_opcode(by_id[i], "copy")
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
        state = dict.fromkeys(ids, 0)  # 0 new, 1 being visited, 2 placed
        operands, users, controlled = self.operands, self.users, self._controlled
        for start in ids:
            if users[start]:
                continue
            stack = [start]
            while stack:
                current = stack[-1]
                if state[current]:
                    stack.pop()
                    if state[current] == 1:
                        state[current] = 2
                        order.append(current)
                    continue
                waiting = [o for o in operands[current] if state[o] != 2]
                waiting.reverse()
                if current in controlled:
                    before = self.instructions[current].control_predecessors
                    waiting += [p.id for p in before if state[p.id] != 2]
                if waiting:
                    state[current] = 1
                    stack += waiting
                else:
                    state[current] = 2
                    order.append(stack.pop())
        return order


def _normal(shape: Shape, sharding: HloSharding) -> HloSharding:
    """One leaf given for a whole tuple stands for every leaf (XLA's NormalizeTupleSharding)."""
    return sharding if sharding.is_tuple() else sharding.normalize_tuple(len(shape.leaves))


def _swap_remove(users: list[int], user: int) -> None:
    """XLA's Users::RemoveUser: the last user takes the place of the removed one."""
    place = users.index(user)
    users[place] = users[-1]
    users.pop()


def _append_root_copy(module: Module, sharding: HloSharding | None) -> None:
    root = module.entry.root
    position, name = len(module.entry.instructions), rewrite.fresh_name(module, "copy")
    copy = rewrite.insert(module.entry, position, "copy", root.shape, (root,), name=name, like=root)
    module.entry.set_root(copy)
    module.renumber()
    if sharding is not None:
        module.shardings[copy.id] = sharding
